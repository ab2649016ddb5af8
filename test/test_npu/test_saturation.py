"""Overflows in both modes of the chip: infinities and NaN (the default), and saturation (INF_NAN_MODE_ENABLE=0). In
both the status register tells that an operator overflowed."""

import os
import subprocess
import sys
import textwrap
import unittest
import warnings

import torch.nn.functional as F

import torch

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def cases(dtype):
    """(kind, run): each overflows `dtype`. Made of finite operands that are on npu already."""
    large = torch.finfo(dtype).max * 0.9
    x = torch.full((4, 64), large, dtype=dtype, device="npu")
    image = torch.full((1, 32, 4, 4), large, dtype=dtype, device="npu")
    weight = torch.full((8, 32, 3, 3), 2.0, dtype=dtype, device="npu")
    yield "elementwise", lambda: x * 2
    yield "in place", lambda: x.clone().mul_(2)
    yield "negative", lambda: -x - x
    yield "exp", lambda: torch.exp(x)
    yield "division by zero", lambda: x / torch.zeros_like(x)
    yield "matmul", lambda: x @ x.t()
    yield "linear", lambda: F.linear(x, x)
    yield "bmm", lambda: torch.bmm(x[None], x.t()[None])
    yield "convolution", lambda: F.conv2d(image, weight)
    yield "reduction", lambda: x.sum()
    yield "reduction of rows", lambda: x.sum(1)
    yield "channels_last", lambda: image.contiguous(memory_format=torch.channels_last) * 2
    if dtype is not torch.float32:
        wide = torch.full((4,), torch.finfo(torch.float32).max, device="npu")
        yield "cast", lambda: wide.to(dtype)


def check_saturation():
    """Runs in a process with INF_NAN_MODE_ENABLE=0."""
    assert not torch.npu.utils.is_support_inf_nan()
    for dtype in DTYPES:
        largest = torch.finfo(dtype).max
        for kind, run in cases(dtype):
            torch.npu.utils.clear_npu_overflow_flag()
            assert not torch.npu.utils.get_npu_overflow_flag(), (dtype, kind)
            result = run()
            assert result.abs().max().item() == largest, (dtype, kind, result)
            assert torch.isfinite(result).all().item(), (dtype, kind)
            assert torch.npu.utils.get_npu_overflow_flag(), (dtype, kind)
            assert torch.npu.utils.npu_check_overflow(result)
        x = torch.full((4,), largest, dtype=dtype, device="npu")
        assert (-x - x)[0].item() == -largest
        torch.npu.utils.clear_npu_overflow_flag()
        zero = torch.zeros(4, dtype=dtype, device="npu")
        assert (zero / zero).tolist() == [0.0] * 4
        assert torch.npu.utils.get_npu_overflow_flag()
        torch.npu.utils.clear_npu_overflow_flag()
        # What only moves, chooses or compares keeps infinities that come from outside, and raises no flag.
        inf = torch.tensor([float("inf"), 1.0], dtype=dtype).npu()
        assert torch.cat([inf, inf]).reshape(2, 2).t().contiguous().flip(0).isinf().sum().item() == 2
        assert torch.softmax(zero.masked_fill(zero == 0, float("-inf"))[:1].add(0), 0).isfinite().all().item()
        assert x.view(2, 2).t().contiguous().max().item() == largest
        assert not torch.npu.utils.get_npu_overflow_flag(), dtype
    with torch.npu.stream(torch.npu.Stream()):
        assert (torch.full((4,), 3e38, device="npu") * 2).max().item() == torch.finfo(torch.float32).max
    print("saturates")


def check_scaler():
    """torch.amp.GradScaler skips a step although no gradient is infinite; runs with INF_NAN_MODE_ENABLE=0."""
    weight = torch.nn.Parameter(torch.ones(8, device="npu", dtype=torch.float32))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = torch.amp.GradScaler("npu", init_scale=2.0**16)
    torch.npu.utils.clear_npu_overflow_flag()
    done = []
    for factor in (1e4, 1e-3):  # the first overflows fp16 when it is scaled
        optimizer.zero_grad()
        loss = (weight.half() * factor).float().mean()
        scaler.scale(loss).backward()
        before = weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        done.append((torch.equal(before, weight), scaler.get_scale()))
    assert done == [(True, 2.0**15), (False, 2.0**15)], done
    print("scales")


class TestInfNan(unittest.TestCase):
    """The default mode."""

    def setUp(self):
        self.status = torch.npu_alloc_float_status(torch.zeros(1, device="npu"))

    def overflowed(self):
        torch.npu_get_float_status(self.status)
        return self.status[0].item() != 0

    def test_the_operator_that_overflows_sets_the_status(self):
        for dtype in DTYPES:
            for kind, run in cases(dtype):
                with self.subTest(kind, dtype=dtype):
                    torch.npu_clear_float_status(self.status)
                    result = run()
                    self.assertFalse(torch.isfinite(result).all().item())
                    self.assertTrue(self.overflowed())
                    torch.npu_clear_float_status(self.status)
                    (result + 1).sum()  # passes it on
                    self.assertFalse(self.overflowed())

    def test_questions(self):
        self.assertTrue(torch.npu.utils.is_support_inf_nan())
        self.assertTrue(torch.npu.utils.npu_check_overflow(torch.tensor([1.0, float("nan")], device="npu")))
        self.assertFalse(torch.npu.utils.npu_check_overflow(torch.ones(3, device="npu")))
        self.assertTrue(torch.npu.utils.npu_check_overflow(float("inf")))
        self.assertFalse(torch.npu.utils.npu_check_overflow(1.0))
        with self.assertRaisesRegex(TypeError, "a tensor or a float expected, not str"):
            torch.npu.utils.npu_check_overflow("inf")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.npu.utils.clear_npu_overflow_flag()
        self.assertIn("there is no flag to clear", str(caught[0].message))


class TestSaturation(unittest.TestCase):
    def run_here(self, function, **variables):
        script = f"import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n" + textwrap.dedent(
            f"import test_saturation\ntest_saturation.{function}()"
        )
        environment = os.environ | variables
        return subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    def test_results_and_status(self):
        for switch in ({"INF_NAN_MODE_ENABLE": "0"}, {"INF_NAN_MODE_FORCE_DISABLE": "1"}):
            result = self.run_here("check_saturation", **switch)
            self.assertEqual(result.stdout.strip(), "saturates", result.stderr)

    def test_through_the_task_queue(self):
        result = self.run_here("check_saturation", INF_NAN_MODE_ENABLE="0", TASK_QUEUE_ENABLE="2")
        self.assertEqual(result.stdout.strip(), "saturates", result.stderr)

    def test_grad_scaler(self):
        for operators in ("all", "cann"):
            result = self.run_here("check_scaler", INF_NAN_MODE_ENABLE="0", ASCEND_SIM_OPERATORS=operators)
            self.assertEqual(result.stdout.strip(), "scales", result.stderr)

    def test_wrong_value(self):
        result = self.run_here("check_scaler", INF_NAN_MODE_ENABLE="off")
        self.assertIn("INF_NAN_MODE_ENABLE must be an integer from 0 to 1", result.stderr)


if __name__ == "__main__":
    unittest.main()
