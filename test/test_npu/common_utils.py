"""TestCase and run_tests as the operator tests of the 1.5-era fork import them: CPU and NPU results are compared.

Importing this module selects the NPU that the tests run on: ``npu:0``, or the one that SET_NPU_DEVICE names.
"""

import collections.abc
import contextlib
import os
import subprocess
import sys
import unittest

import numpy as np
import several_devices  # noqa: F401
from torch_npu.testing._compare import RtolCase, describe, to_numpy

import torch
import torch.npu

device_index = int(os.environ.get("SET_NPU_DEVICE", "0").removeprefix("npu:"))
torch.npu.set_device(f"npu:{device_index}")


@contextlib.contextmanager
def hf32_switches(matmul: bool | None = None, conv: bool | None = None):
    """Inside, the HF32 switches that are given have these values; afterwards both are what they were, set or not."""
    switches = type(torch.npu.matmul)
    allowed, was_set = dict(switches._allowed), dict(switches._was_set)
    try:
        if matmul is not None:
            torch.npu.matmul.allow_hf32 = matmul
        if conv is not None:
            torch.npu.conv.allow_hf32 = conv
        yield
    finally:
        switches._allowed.update(allowed)
        switches._was_set.update(was_set)
        switches._send()


class TestCase(RtolCase):
    """unittest.TestCase whose assertEqual understands tensors, and with the fork's assertRtolEqual."""

    maxDiff = None
    precision = 1e-5

    def assertEqual(self, first, second, msg=None, *, prec=None, atol=None, rtol=None, exact_dtype=False):
        """Compare tensors (wherever they are), arrays, numbers and containers of them.

        ``prec`` (or a number in place of ``msg``) is the absolute tolerance, 1e-5 by default; NaN equals NaN.
        """
        if isinstance(msg, float):
            msg, prec = None, msg
        if isinstance(first, torch.Tensor) or isinstance(second, torch.Tensor):
            self._compare_tensors(first, second, msg, atol if atol is not None else prec, rtol or 0.0, exact_dtype)
        elif isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
            self._compare_arrays(
                to_numpy(first), to_numpy(second), msg, prec if prec is not None else atol, rtol or 0.0
            )
        elif isinstance(first, dict) and isinstance(second, dict):
            super().assertEqual(set(first), set(second), msg)
            for key in first:
                self.assertEqual(first[key], second[key], msg, prec=prec, atol=atol, rtol=rtol, exact_dtype=exact_dtype)
        elif _is_sequence(first) and _is_sequence(second):
            super().assertEqual(len(first), len(second), msg)
            for a, b in zip(first, second, strict=True):
                self.assertEqual(a, b, msg, prec=prec, atol=atol, rtol=rtol, exact_dtype=exact_dtype)
        elif isinstance(first, float) and isinstance(second, (int, float)) and (prec or atol or rtol):
            self._compare_arrays(
                np.asarray(first), np.asarray(second), msg, prec if prec is not None else atol, rtol or 0
            )
        else:
            super().assertEqual(first, second, msg)

    def _compare_tensors(self, first, second, msg, atol, rtol, exact_dtype):
        for side in (first, second):
            if not isinstance(side, (torch.Tensor, np.ndarray, int, float, complex, bool, np.generic, list, tuple)):
                self.fail(self._formatMessage(msg, f"{type(first).__name__} and {type(second).__name__} differ"))
        if exact_dtype:
            super().assertEqual(first.dtype, second.dtype, msg)
        self._compare_arrays(to_numpy(first), to_numpy(second), msg, atol, rtol)

    def _compare_arrays(self, a, b, msg, atol, rtol):
        super().assertEqual(a.shape, b.shape, msg)
        if a.dtype.kind in "fc" or b.dtype.kind in "fc":
            wide = np.complex128 if "c" in a.dtype.kind + b.dtype.kind else np.float64
            wrong = ~np.isclose(
                a.astype(wide), b.astype(wide), atol=self.precision if atol is None else atol, rtol=rtol, equal_nan=True
            )
        elif atol:
            wrong = np.abs(a.astype(np.int64) - b.astype(np.int64)) > atol
        else:
            wrong = a != b
        self.assertFalse(wrong.any(), self._formatMessage(msg, describe(a, b, wrong)))


def _is_sequence(value) -> bool:
    return isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes))


def run_in_process(script: str, timeout: int = 120, **environment: str) -> subprocess.CompletedProcess:
    """Run Python source in a fresh interpreter and return what came of it; ``environment`` is added to this one's."""
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
        cwd=os.path.dirname(os.path.abspath(__file__)),
    )


def run_tests() -> None:
    """Run the tests of the calling script; prints OK and exits with 0 if they pass."""
    unittest.main(argv=sys.argv)
