"""Operators without an NPU kernel: run on the CPU through copies, said once, counted, or refused."""

import os
import subprocess
import sys
import unittest

import torch
import torch.npu

DEVICE = "npu:0"


# An operator that never gets an NPU kernel.
LIBRARY = torch.library.Library("fallbacktest", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
LIBRARY.define("pair(Tensor x, Tensor y) -> Tensor")
LIBRARY.define("part(Tensor(a) x) -> Tensor(a)")
LIBRARY.impl("twice", lambda x: x * 2, "CPU")
LIBRARY.impl("twice.out", lambda x, *, out: out.resize_(x.shape).copy_(x * 2), "CPU")
LIBRARY.impl("pair", lambda x, y: x + y, "CPU")
LIBRARY.impl("part", lambda x: x[:1], "CPU")
twice, pair, part = torch.ops.fallbacktest.twice, torch.ops.fallbacktest.pair, torch.ops.fallbacktest.part


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NPU_FALLBACK": "1", **environment},
    )


class FallbackTest(unittest.TestCase):
    def tearDown(self):
        torch.npu.reset_fallback_stats()  # other files ask that theirs stay empty

    def test_result_and_count(self):
        torch.npu.reset_fallback_stats()
        x = torch.randn(3, 4)
        for _ in range(3):
            result = twice(x.to(DEVICE))
        self.assertEqual(result.device.type, "npu")
        torch.testing.assert_close(result.cpu(), x * 2)
        self.assertEqual(torch.npu.fallback_stats(), {"fallbacktest::twice": 3})
        torch.npu.reset_fallback_stats()
        self.assertEqual(torch.npu.fallback_stats(), {})

    def test_said_once_per_operator(self):
        code = (
            "import torch, torch.npu\n"
            "library = torch.library.Library('once', 'DEF')\n"
            "for name in ('a', 'b'):\n"
            "    library.define(f'{name}(Tensor x) -> Tensor')\n"
            "    library.impl(name, lambda x: x * 2, 'CPU')\n"
            "x = torch.ones(2, device='npu')\n"
            "for _ in range(3):\n"
            "    torch.ops.once.a(x), torch.ops.once.b(x)\n"
            "    torch.npu.reset_fallback_stats()\n"
        )
        result = run(code)
        for name in ("a", "b"):
            said = f"The operator 'once::{name}' is not currently supported on the NPU backend and will fall back"
            self.assertEqual(result.stderr.count(said), 1, result.stderr)

    def test_native_operators_do_not_count(self):
        torch.npu.reset_fallback_stats()
        x = torch.randn(3, 4, device=DEVICE)
        (x + x).exp().sum().item()
        x.abs_().clamp(0, 1).t().contiguous().max(1)
        self.assertEqual(torch.npu.fallback_stats(), {})

    def test_strided_and_offset_arguments(self):
        base = torch.randn(60)
        x = torch.as_strided(base, (3, 4), (8, 2), 19)
        y = torch.as_strided(base.to(DEVICE), (3, 4), (8, 2), 19)
        torch.testing.assert_close(twice(y).cpu(), x * 2)

    def test_out_and_in_place(self):
        x = torch.rand(3, 4)
        out = torch.empty(0, device=DEVICE)
        result = twice.out(x.to(DEVICE), out=out)
        self.assertIs(result, out)
        torch.testing.assert_close(out.cpu(), x * 2)
        strided = torch.zeros(3, 8, device=DEVICE)
        twice.out(x.to(DEVICE), out=strided[:, ::2])
        torch.testing.assert_close(strided[:, ::2].cpu(), x * 2)
        self.assertEqual(strided[:, 1::2].abs().sum().item(), 0)

    def test_operators_made_of_their_out_form(self):
        x = torch.tensor([[1.5, -2.0], [float("inf"), float("nan")]])
        y = x.to(DEVICE)
        for op in (torch.abs, torch.isfinite, torch.isinf, torch.isnan, torch.isposinf):
            torch.testing.assert_close(op(y).cpu(), op(x), equal_nan=True)
        out = torch.empty(0, device=DEVICE)
        torch.abs(y, out=out)
        torch.testing.assert_close(out.cpu(), x.abs(), equal_nan=True)
        torch.testing.assert_close(y.clone().abs_().cpu(), x.abs(), equal_nan=True)

    def test_mixed_devices_are_refused(self):
        x = torch.randn(3, 3)
        with self.assertRaisesRegex(RuntimeError, "Expected all tensors to be on the same device"):
            pair(x.to(DEVICE), x)
        torch.testing.assert_close(pair(x.to(DEVICE), torch.tensor(1.0)).cpu(), x + 1)
        self.assertEqual((torch.ones(2, device=DEVICE) + 1).sum().item(), 4)

    def test_views_are_refused(self):
        with self.assertRaisesRegex(NotImplementedError, "would not share memory"):
            part(torch.randn(3, device=DEVICE))

    def test_errors_of_the_cpu_kernel_come_through(self):
        with self.assertRaises(RuntimeError):
            pair(torch.zeros(2, device=DEVICE), torch.zeros(3, device=DEVICE))

    def test_random_operators_are_refused(self):
        code = (
            "import torch, torch.npu\n"
            "tags = (torch.Tag.nondeterministic_seeded,)\n"
            "torch.library.define('fallbacktest::draw', '(Tensor x) -> Tensor', tags=tags)\n"
            "torch.library.impl('fallbacktest::draw', 'CPU')(lambda x: torch.rand_like(x))\n"
            "try:\n"
            "    torch.ops.fallbacktest.draw(torch.ones(2, device='npu'))\n"
            "except NotImplementedError as error:\n"
            "    print('random numbers' in str(error))\n"
        )
        result = run(code)
        self.assertEqual(result.stdout.strip(), "True", result.stderr)

    def test_other_layouts(self):
        """Sparse operators without a kernel run on the CPU, too, and are counted; see test_sparse.py."""
        torch.npu.reset_fallback_stats()
        sparse = torch.eye(2).to_sparse_csr().to(DEVICE)
        self.assertEqual(torch._sparse_csr_prod(sparse, [1], True).values().tolist(), [1.0, 1.0])
        self.assertEqual(torch.npu.fallback_stats(), {"aten::_sparse_csr_prod.dim_dtype": 1})
        jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
        self.assertEqual((jagged.to(DEVICE) * 2).values().tolist(), [2.0] * 5)

    def test_switched_off(self):
        code = (
            "import torch, torch.npu\n"
            "x = torch.ones(2, 2, device='npu')\n"
            "library = torch.library.Library('switchedoff', 'DEF')\n"
            "library.define('twice(Tensor x) -> Tensor')\n"
            "library.impl('twice', lambda x: x * 2, 'CPU')\n"
            "try:\n"
            "    torch.ops.switchedoff.twice(x)\n"
            "except NotImplementedError as error:\n"
            "    print(str(error)[:40])\n"
            "print((x + x).sum().item())\n"
        )
        result = run(code, NPU_FALLBACK="0")
        lines = result.stdout.splitlines()
        self.assertTrue(lines and lines[0].startswith("Could not run 'switchedoff"), result.stdout + result.stderr)
        self.assertEqual(lines[1], "8.0")


if __name__ == "__main__":
    unittest.main()
