"""How results of the CPU and of an NPU are compared."""

import unittest

import numpy as np

import torch


def to_numpy(value) -> np.ndarray:
    """Return the values of a tensor on any device, an array or a number as an array; bfloat16 becomes float32."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().resolve_conj().resolve_neg()
        return value.float().numpy() if value.dtype == torch.bfloat16 else value.numpy()
    return np.asarray(value)


def describe(a: np.ndarray, b: np.ndarray, wrong: np.ndarray) -> str:
    """The first elements that differ, for a message."""
    places = np.argwhere(wrong)[:5]
    shown = ", ".join(f"{tuple(int(i) for i in p)}: {a[tuple(p)]} != {b[tuple(p)]}" for p in places)
    return f"{int(wrong.sum())} of {a.size} elements differ: {shown}"


class RtolCase(unittest.TestCase):
    """unittest.TestCase with assertRtolEqual."""

    def assertRtolEqual(self, x, y, prec=1e-4, prec16=1e-3, auto_trans_dtype=False, message=None):
        """Compare as the fork does: an element is right if its absolute or relative error is within the precision
        (``prec16`` for float16), and that share of the elements may be wrong.

        Raises:
            AssertionError: shapes, dtypes (unless ``auto_trans_dtype``) or too many elements differ.
        """
        check = unittest.TestCase  # a test case's own assertEqual may take other arguments
        if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
            check.assertEqual(self, len(x), len(y), message)
            for a, b in zip(x, y, strict=True):
                self.assertRtolEqual(a, b, prec, prec16, auto_trans_dtype, message)
            return
        x, y = to_numpy(x), to_numpy(y)
        check.assertEqual(self, x.shape, y.shape, message)
        if x.dtype != y.dtype:
            if not auto_trans_dtype:
                self.fail(self._formatMessage(message, f"dtypes differ: {x.dtype} and {y.dtype}"))
            y = y.astype(x.dtype)
        if x.size == 0:
            return
        if x.dtype.kind not in "fc":
            wrong = x != y
            self.assertFalse(wrong.any(), self._formatMessage(message, describe(x, y, wrong)))
            return
        limit = prec16 if x.dtype == np.float16 else prec
        self.assertTrue(
            np.array_equal(np.isnan(x), np.isnan(y)), self._formatMessage(message, "NaN at different places")
        )
        wide = np.complex128 if x.dtype.kind == "c" else np.float64
        a, b = np.nan_to_num(x).astype(wide), np.nan_to_num(y).astype(wide)
        # Infinite elements of one sign are equal, and their difference is not a number.
        error = np.where(np.isinf(x) & (x == y), 0, np.abs(a - b))
        wrong = (error > limit) & (error > limit * np.abs(a))
        self.assertLessEqual(wrong.sum(), x.size * limit, self._formatMessage(message, describe(x, y, wrong)))
