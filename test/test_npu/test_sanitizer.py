"""torch.npu._sanitizer: planted races are found, in forward, in backward and between streams made by hand; ordered work
is not reported. Each program runs in a process of its own, since the sanitizer is for a whole program."""

import os
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

from common_utils import TestCase, run_tests

import torch
from torch.npu._sanitizer import Extent

ROOT = Path(__file__).resolve().parents[2]
BEGIN = """
import torch
from torch.npu._sanitizer import NPUSanitizerErrors
side, main = torch.npu.Stream(), torch.npu.current_stream()
x = torch.ones(64, 64, device="npu")
"""


def run(code: str, switch: str = "1", timeout: float = 120) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, "TORCH_NPU_SANITIZER": switch},
        timeout=timeout,
    )


class TestRaces(TestCase):
    def assertRace(self, code: str, *words: str) -> None:
        done = run(code)
        self.assertNotEqual(done.returncode, 0, "no race was found")
        self.assertIn("possible data race", done.stderr)
        self.assertIn("NPUSanitizerErrors: detected", done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def assertQuiet(self, code: str, switch: str = "1") -> None:
        done = run(textwrap.dedent(code) + "\nprint('done')", switch)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "done"), done.stderr)

    def test_forward(self):
        self.assertRace(
            """
            y = x @ x
            with torch.npu.stream(side):
                z = y + 1  # nothing makes it wait for the product
            """,
            "reading from argument self",
            "writing to the result",
            "aten::mm",
            "aten::add.Tensor",
        )

    def test_write_after_read(self):
        self.assertRace(
            """
            side.wait_stream(main)
            with torch.npu.stream(side):
                z = x.sum()
            x.add_(1)
            """,
            "writing to argument self",
            "reading from argument self",
        )

    def test_backward(self):
        self.assertRace(
            """
            class OnSide(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 2

                @staticmethod
                def backward(ctx, grad):
                    with torch.npu.stream(side):
                        return grad * 2  # neither waits for the gradient, nor is it waited for
            w = torch.ones(64, 64, device="npu", requires_grad=True)
            (OnSide.apply(w) * x).sum().backward()
            """,
            "aten::mul",
        )

    def test_running_statistics(self):
        """Their operator changes them, which its schema does not say."""
        self.assertRace(
            """
            norm = torch.nn.BatchNorm1d(64).npu()
            torch.npu.synchronize()
            norm(x)
            with torch.npu.stream(side):
                norm.running_mean.sum()
            """,
            "writing to argument running_mean",
        )

    def test_streams_made_by_hand(self):
        self.assertRace(
            """
            import ctypes
            from pathlib import Path
            acl = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/ascend_sim/libascendcl.so"))
            handle = ctypes.c_void_p()
            assert acl.aclrtCreateStream(ctypes.byref(handle)) == 0
            own = torch.npu.ExternalStream(handle.value)
            with torch.npu.stream(own):
                y = x * 2
            """
        )

    def test_one_of_two_waits_is_missing(self):
        self.assertRace(
            """
            third = torch.npu.Stream()
            side.wait_stream(main)
            with torch.npu.stream(side):
                x.mul_(2)
            third.wait_stream(main)  # of the side stream it knows nothing
            with torch.npu.stream(third):
                x.sum()
            """
        )

    def test_memory_is_used_again_too_early(self):
        self.assertRace(
            """
            y = torch.ones(64, 64, device="npu")
            side.wait_stream(main)
            with torch.npu.stream(side):
                y.sum()
            del y
            z = torch.zeros(64, 64, device="npu")  # the same memory, which the sum may still read
            """,
            "freed and allocated again",
        )

    def test_lists_and_out(self):
        self.assertRace(
            """
            parts = [torch.ones(8, device="npu") for _ in range(3)]
            result = torch.empty(24, device="npu")
            side.wait_stream(main)
            parts[1].add_(1)
            with torch.npu.stream(side):
                torch.cat(parts, out=result)
            """,
            "aten::cat.out",
        )

    def test_ordered_work_is_quiet(self):
        self.assertQuiet(
            """
            # Events, streams, the host's waits and questions.
            y = x @ x
            event = torch.npu.Event()
            event.record()
            side.wait_event(event)
            with torch.npu.stream(side):
                y.add_(1)
            main.wait_stream(side)
            y.mul_(2)
            torch.npu.synchronize()
            with torch.npu.stream(side):
                y.add_(1)
                event.record(side)
            event.synchronize()
            y.sum()
            with torch.npu.stream(side):
                side.wait_stream(main)
                y.add_(1)
            while not side.query():
                pass
            y.sum().item()
            # Reads beside reads.
            side.wait_stream(main)
            with torch.npu.stream(side):
                a = x.sum()
            b = x.sum()
            main.wait_stream(side)
            # In evaluation a normalisation only reads its statistics.
            norm = torch.nn.BatchNorm1d(64).npu().eval()
            torch.npu.synchronize()
            norm(x)
            with torch.npu.stream(side):
                norm.running_mean.sum()
            main.wait_stream(side)
            # Transitively.
            third = torch.npu.Stream()
            x.add_(1)
            side.wait_stream(main)
            third.wait_stream(side)
            with torch.npu.stream(third):
                x.sum()
            main.wait_stream(third)
            # Memory that another stream used, by record_stream.
            y = torch.ones(64, 64, device="npu")
            side.wait_stream(main)
            with torch.npu.stream(side):
                y.sum()
            y.record_stream(side)
            del y
            z = torch.zeros(64, 64, device="npu")
            # Factories read nothing, views neither.
            with torch.npu.stream(side):
                like = torch.empty_like(x)
                x.t().view(64, 64)
            """
        )

    def test_parts_of_a_tensor(self):
        self.assertQuiet(
            """
            side.wait_stream(main)
            with torch.npu.stream(side):
                x[:32].add_(1)
                x[32:, :8].add_(1)
            x[32:, 8:].add_(1)
            """
        )
        self.assertRace(
            """
            side.wait_stream(main)
            with torch.npu.stream(side):
                x[:, 3:5].add_(1)
            x[:, 4].add_(1)
            """
        )

    def test_backward_follows_its_forward(self):
        self.assertQuiet(
            """
            net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to("npu")
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for _ in range(3):
                optimizer.zero_grad()
                side.wait_stream(main)
                with torch.npu.stream(side):
                    loss = net(x).square().mean()
                main.wait_stream(side)
                loss.backward()
                optimizer.step()
            """
        )

    def test_switched_off(self):
        self.assertQuiet("with torch.npu.stream(side): y = x + 1", switch="0")
        self.assertQuiet("with torch.npu.stream(side): y = x + 1", switch="")

    def test_in_a_program(self):
        code = """
            from torch.npu import _sanitizer
            _sanitizer.enable_npu_sanitizer()
            y = x @ x
            try:
                with torch.npu.stream(side):
                    y + 1
            except NPUSanitizerErrors as found:
                (error,) = found.errors
                print(error.data_ptr == y.data_ptr(), error.current_access.stream == side.npu_stream,
                      error.previous_access.type.name)
            _sanitizer.npu_sanitizer.disable()
            with torch.npu.stream(side):
                y + 1
            """
        done = run(code, switch="0")
        self.assertEqual(done.stdout.strip(), "True True WRITE", done.stderr)

    def test_examples_are_quiet(self):
        for name, *options in (("examples/overlap.py", "--side", "128", "--repeat", "2"),):
            done = subprocess.run(
                [sys.executable, str(ROOT / name), *options],
                capture_output=True,
                text=True,
                env={**os.environ, "TORCH_NPU_SANITIZER": "1"},
                timeout=200,
            )
            self.assertIn("the host is back", done.stdout, done.stderr)
            self.assertNotIn("data race", done.stderr)
            self.assertNotIn("Traceback", done.stderr)


class TestExtent(unittest.TestCase):
    def test_overlap_is_exact(self):
        base = torch.arange(60, dtype=torch.int32).view(6, 10)
        views = {
            "all": base,
            "row": base[2],
            "rows": base[1:3],
            "column": base[:, 3],
            "columns": base[:, 3:6],
            "checks": base[::2, ::2],
            "others": base[1::2, 1::2],
            "expanded": base[4:5, 4:5].expand(3, 3),
            "none": base[:0],
            "turned": base.t()[5],
            "bytes": base.view(torch.uint8)[:, 12:13],
        }

        def elements(view):
            start, step = view.storage_offset() * view.element_size(), view.element_size()
            places = {start}
            for size, stride in zip(view.shape, view.stride(), strict=True):
                places = {p + i * stride * step for p in places for i in range(size)}
            return {p + k for p in places for k in range(step)} if view.numel() else set()

        for one, a in views.items():
            for other, b in views.items():
                with self.subTest(one=one, other=other):
                    self.assertEqual(Extent.of(a).meets(Extent.of(b)), bool(elements(a) & elements(b)))
                    if Extent.of(a).covers(Extent.of(b)):
                        self.assertLessEqual(elements(b), elements(a))


if __name__ == "__main__":
    run_tests()
