"""Views that are one copy are one IR operator: making them contiguous, and writing into them, launches exactly one,
moves nothing through the host, and gives the CPU's values."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import torch.npu

DEVICE = "npu:0"


def counters():
    torch.npu.synchronize()
    counted = torch._C._npu_simulatorCounters(0)
    if counted is None:
        raise unittest.SkipTest("only the simulated device counts what it launches")
    return counted


# name: how a view of x (2, 3, 8, 6) is made, and the IR operator that makes it contiguous
VIEWS = {
    "broadcast": (lambda x: x[:1].expand(4, 3, 8, 6), "BroadcastTo"),
    "broadcast to more dimensions": (lambda x: x[0, 0, 0].expand(4, 3, 6), "BroadcastTo"),
    "permute": (lambda x: x.permute(3, 1, 0, 2), "Transpose"),
    "transpose": (lambda x: x.transpose(1, 2), "Transpose"),
    "channels_last to contiguous": (lambda x: x.permute(0, 3, 1, 2), "Transpose"),
    "select": (lambda x: x.select(2, 3), "AsStrided"),
    "select the last": (lambda x: x[..., -1], "AsStrided"),
    "slice": (lambda x: x[:, 1:3], "AsStrided"),
    "slice with steps": (lambda x: x[:, :, 1::3, ::2], "AsStrided"),
    "narrow": (lambda x: x.narrow(3, 2, 3), "AsStrided"),
    "diagonal": (lambda x: x.diagonal(0, 2, 3), "AsStrided"),
    "unfold": (lambda x: x.unfold(2, 3, 2), "AsStrided"),
    "as_strided": (lambda x: x.as_strided((3, 4), (7, 2), 5), "AsStrided"),
    "reshape of a permute": (lambda x: x.permute(0, 2, 3, 1).flatten(1, 2), "Transpose"),
    "permute of a slice": (lambda x: x[:, 1:, 2:6].permute(2, 0, 3, 1), "AsStrided"),
    "slice of a permute": (lambda x: x.permute(1, 3, 0, 2)[:, 1:4], "AsStrided"),
    "select of a transpose": (lambda x: x.transpose(0, 3)[2], "AsStrided"),
    "broadcast of a permute": (lambda x: x.permute(2, 0, 1, 3)[:, None].expand(8, 4, 2, 3, 6), "AsStrided"),
    "broadcast of a slice": (lambda x: x[:, :, :1, 1:4].expand(2, 3, 8, 3), "AsStrided"),
    "broadcast in the middle": (lambda x: x[:, :1].expand(2, 5, 8, 6), "AsStrided"),
    "view of a slice": (lambda x: x[:, 1:].view(2, 2, 48), "AsStrided"),
    "movedim and select": (lambda x: x.movedim(1, -1)[..., 0], "AsStrided"),
    "five dimensions": (lambda x: x.view(2, 3, 4, 2, 6).permute(0, 2, 1, 4, 3), "Transpose"),
}


class ContiguityTest(unittest.TestCase):
    def setUp(self):
        self.x = torch.arange(288, dtype=torch.float32).reshape(2, 3, 8, 6)

    def launched(self, function):
        """(what the function returns, IR operators launched); fails if anything went through the host."""
        before = counters()
        result = function()
        after = counters()
        for direction in ("host_to_device_copies", "device_to_host_copies"):
            self.assertEqual(after[direction], before[direction], direction)
        return result, after["ops_launched"] - before["ops_launched"]

    def test_contiguous(self):
        for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
            x = self.x.to(dtype)
            on_npu = x.to(DEVICE)
            for name, (view, _) in VIEWS.items():
                with self.subTest(name, dtype=dtype):
                    actual, ops = self.launched(lambda view=view, x=on_npu: view(x).contiguous())
                    self.assertEqual(ops, 1)
                    self.assertTrue(torch.equal(actual.cpu(), view(x).contiguous()))

    def test_views_themselves_launch_nothing(self):
        x = self.x.to(DEVICE)
        for name, (view, _) in VIEWS.items():
            with self.subTest(name):
                self.assertEqual(self.launched(lambda view=view: view(x))[1], 0)

    def test_clone_copies_once(self):
        x = self.x.to(DEVICE)
        for name, (view, _) in VIEWS.items():
            with self.subTest(name):
                actual, ops = self.launched(lambda view=view: view(x).clone(memory_format=torch.contiguous_format))
                self.assertEqual(ops, 1)
                self.assertTrue(torch.equal(actual.cpu(), view(self.x)))

    def test_write_into_a_view(self):
        for name, (view, _) in VIEWS.items():
            expected = self.x.clone()
            target = view(expected)
            if torch._debug_has_internal_overlap(target) or name in ("unfold", "as_strided"):
                continue
            values = torch.randn(target.shape)
            on_npu, sent = self.x.to(DEVICE), values.to(DEVICE)
            with self.subTest(name):
                target.copy_(values)
                _, ops = self.launched(lambda view=view, on_npu=on_npu, sent=sent: view(on_npu).copy_(sent))
                self.assertEqual(ops, 1)
                self.assertTrue(torch.equal(on_npu.cpu(), expected))

    def test_small_steps(self):
        """Steps that the device has loops for, and those next to them, read and written, of all widths."""
        dtypes = (torch.bool, torch.int8, torch.float16, torch.int32, torch.float32, torch.int64, torch.complex128)
        for dtype in dtypes:
            base = (torch.arange(7 * 200).reshape(7, 200) % 113 % (2 if dtype == torch.bool else 113)).to(dtype)
            on_npu = base.to(DEVICE)
            for step in (2, 3, 7, 8, 9):
                for view in (
                    lambda t, n=step: t[:, ::n],
                    lambda t, n=step: t[1::2, 3::n],
                    lambda t, n=step: t[3, 1::n],
                ):
                    with self.subTest(dtype=dtype, step=step):
                        self.assertTrue(torch.equal(view(on_npu).contiguous().cpu(), view(base).contiguous()))
                        expected, target = base.clone(), on_npu.clone()
                        values = view(base).flip(-1)
                        view(expected).copy_(values)
                        view(target).copy_(values.to(DEVICE))
                        self.assertTrue(torch.equal(target.cpu(), expected))
                        view(target).copy_(view(on_npu.flip(0)))
                        view(expected).copy_(view(base.flip(0)))
                        self.assertTrue(torch.equal(target.cpu(), expected))

    def test_large_steps_of_a_large_tensor(self):
        base = torch.randn(600, 600)
        on_npu = base.to(DEVICE)
        self.assertTrue(torch.equal(on_npu[:, ::2].contiguous().cpu(), base[:, ::2]))
        on_npu[::2, 1::2] = on_npu[1::2, ::2].clone()
        base[::2, 1::2] = base[1::2, ::2].clone()
        self.assertTrue(torch.equal(on_npu.cpu(), base))

    def test_copy_between_views(self):
        x = self.x.to(DEVICE)
        target = torch.zeros(8, 6, 3, 2, device=DEVICE)
        _, ops = self.launched(lambda: target[1:].copy_(x.permute(2, 3, 1, 0)[:-1]))
        self.assertEqual(ops, 1)
        expected = torch.zeros(8, 6, 3, 2)
        expected[1:] = self.x.permute(2, 3, 1, 0)[:-1]
        self.assertTrue(torch.equal(target.cpu(), expected))

    def test_operator_on_a_permuted_tensor_needs_no_copy(self):
        x = self.x.to(DEVICE).permute(0, 3, 1, 2)
        actual, ops = self.launched(lambda: (x * x).relu())
        self.assertEqual(ops, 2)
        self.assertTrue(torch.equal(actual.cpu(), self.x.permute(0, 3, 1, 2).square()))

    def test_expanded_operands_are_broadcast_by_the_operator(self):
        full, row, column = torch.randn(5, 7), torch.randn(7), torch.randn(5, 1)
        cases = {
            "a row": (lambda f, r, c: f * r.expand(5, 7), 1),
            "a column": (lambda f, r, c: c.expand(5, 7) - f, 1),
            "in place": (lambda f, r, c: f.clone().add_(r.expand(5, 7)), 2),
            "three operands": (lambda f, r, c: torch.addcmul(f, r.expand(5, 7), c.expand(5, 7)), 1),
            "of another dtype": (lambda f, r, c: f + r.int().expand(5, 7), 3),
            "each has one dimension": (lambda f, r, c: r.expand(5, 7) + c.expand(5, 7), 1),
            # Nobody has the dimensions in full: one of them is made to.
            "both alike": (lambda f, r, c: r.expand(5, 7) + r.expand(5, 7), None),
            "alone": (lambda f, r, c: r.expand(5, 7).exp(), None),
            "more dimensions": (lambda f, r, c: f.expand(3, 5, 7) + torch.ones_like(f).expand(3, 5, 7), None),
            "strided": (lambda f, r, c: f[:, ::2] + r[::2].expand(5, 4), None),
            "turned": (lambda f, r, c: f.t() + c.t().expand(7, 5), None),
        }
        for name, (fn, launched) in cases.items():
            with self.subTest(name):
                expected = fn(full, row, column)
                operands = [t.to(DEVICE) for t in (full, row, column)]
                actual, ops = self.launched(lambda fn=fn, operands=operands: fn(*operands))
                self.assertTrue(torch.equal(actual.cpu(), expected) or name == "alone")
                torch.testing.assert_close(actual.cpu(), expected)
                self.assertEqual(actual.stride(), expected.stride())
                if launched is not None:
                    self.assertEqual(ops, launched)

    def test_permuted_tensors_are_reduced_over_other_axes(self):
        for order in ((0, 1, 3, 2), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3)):
            x = self.x.permute(order)
            on_npu = self.x.to(DEVICE).permute(order)
            for dim in ((0,), (-1,), (1, 2), (2, 3), (0, 2, 3), (0, 1, 2, 3)):
                for keepdim in (False, True):
                    for name in ("sum", "mean", "amax"):
                        with self.subTest(name, order=order, dim=dim, keepdim=keepdim):
                            expected = getattr(x, name)(dim, keepdim=keepdim)
                            actual = getattr(on_npu, name)(dim, keepdim=keepdim)
                            torch.testing.assert_close(actual.cpu(), expected)
        last = self.x.to(DEVICE).contiguous(memory_format=torch.channels_last)
        for fn in (lambda t: t.mean((2, 3)), lambda t: t.sum(), lambda t: t.amax((0, 2, 3), keepdim=True)):
            _, ops = self.launched(lambda fn=fn: fn(last))
            self.assertEqual(ops, 1)

    def test_reading_a_view_crosses_to_the_host_once(self):
        x = self.x.to(DEVICE)
        before = counters()
        x[:, 1:, ::2].cpu()
        after = counters()
        self.assertEqual(after["device_to_host_copies"] - before["device_to_host_copies"], 1)
        self.assertEqual(after["host_to_device_copies"], before["host_to_device_copies"])

    def test_the_named_operator(self):
        """Which IR operator makes each view contiguous, from the device's log of compilations."""
        script = (
            "import torch, test_contiguity as t\n"
            "x = torch.arange(288, dtype=torch.float32).reshape(2, 3, 8, 6).to('npu')\n"
            "for view, _ in t.VIEWS.values():\n"
            "    view(x).contiguous()\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            environment = {"ASCEND_GLOBAL_LOG_LEVEL": "1", "ASCEND_PROCESS_LOG_PATH": folder}
            subprocess.run(
                [sys.executable, "-c", script],
                check=True,
                cwd=Path(__file__).parent,
                env={**os.environ, **environment},
            )
            log = "".join(path.read_text() for path in Path(folder).glob("plog/*.log"))
        compiled = re.findall(r"To compile op, opType = (\w+),", log)
        # Compiled once for all views of the same sizes, in the order of their first use.
        names = [op for op in dict.fromkeys(compiled) if op != "Cast"]
        self.assertEqual(names, list(dict.fromkeys(op for _, op in VIEWS.values())))


if __name__ == "__main__":
    unittest.main()
