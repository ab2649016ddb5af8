"""TestCase and run_tests with the plug-in's arguments. Importing it does not use a device."""

import contextlib
import inspect
import os
import random
import re
import sys
import unittest
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

import torch

from ._compare import RtolCase

SEED = 1234


class TestCase(RtolCase):
    """unittest.TestCase whose assertions understand tensors, wherever they are; ``prec`` is an absolute tolerance."""

    precision = 1e-5
    maxDiff = None
    exact_dtype = False

    def __init__(self, method_name="runTest"):
        super().__init__(method_name)

    @classmethod
    def setUpClass(cls):
        """Begin with unittest's; there is nothing more to prepare."""
        super().setUpClass()

    def setUp(self):
        """Seed all generators, so that a test draws the same numbers whatever ran before."""
        super().setUp()
        random.seed(SEED)
        np.random.seed(SEED)
        torch.manual_seed(SEED)

    def run(self, result=None):
        """Run the test as unittest does."""
        return super().run(result)

    def safeCoalesce(self, t):
        """Return a coalesced sparse tensor, after comparing it with the sums of its elements by index."""
        sums: dict[tuple[int, ...], torch.Tensor] = {}
        indices, values = t._indices().t().tolist(), t._values()
        for place, value in zip(indices, values, strict=True):
            key = tuple(place)
            sums[key] = sums[key] + value if key in sums else value
        result = t.coalesce()
        self.assertEqual(sorted(sums), sorted(map(tuple, result.indices().t().tolist())))
        for place, value in zip(result.indices().t().tolist(), result.values(), strict=True):
            self.assertEqual(value, sums[tuple(place)])
        return result

    def safeToDense(self, t):
        """Return a sparse tensor as a dense one, after :meth:`safeCoalesce`."""
        return self.safeCoalesce(t).to_dense()

    def genSparseTensor(self, size, sparse_dim, nnz, is_uncoalesced, device="cpu"):
        """Return a sparse tensor, its indices and its values, of ``nnz`` elements; doubled if uncoalesced."""
        shape = torch.tensor(size[:sparse_dim], device=device).unsqueeze(1)
        indices = (torch.rand(sparse_dim, nnz, device=device) * shape).long()
        values = torch.randn([nnz, *size[sparse_dim:]], device=device)
        if is_uncoalesced:
            indices, values = torch.cat([indices, indices], 1), torch.cat([values, torch.rand_like(values)], 0)
        sparse = torch.sparse_coo_tensor(indices, values, torch.Size(size))
        if not is_uncoalesced:
            sparse = sparse.coalesce()
        return sparse, sparse._indices().clone(), sparse._values().clone()

    def _tolerance(self, prec) -> float:
        return self.precision if prec is None else max(self.precision, prec)

    def _compare(self, x, y, prec, message, allow_inf, exact_dtype) -> None:
        if not isinstance(x, torch.Tensor):
            x = torch.as_tensor(x, dtype=y.dtype)
        if not isinstance(y, torch.Tensor):
            y = torch.as_tensor(y, dtype=x.dtype)
        if exact_dtype if exact_dtype is not None else self.exact_dtype:
            unittest.TestCase.assertEqual(self, x.dtype, y.dtype, message)
        a, b = (t.detach().cpu().to_dense() if t.layout != torch.strided else t.detach().cpu() for t in (x, y))
        unittest.TestCase.assertEqual(self, a.shape, b.shape, message)
        if a.dtype == torch.bool or b.dtype == torch.bool:
            self.assertTrue(torch.equal(a.bool(), b.bool()), message)
            return
        wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
        a, b = a.to(wide), b.to(wide)
        # Infinite elements are equal to themselves only; allow_inf, as in the plug-in, lets them differ by infinity.
        close = torch.isclose(a, b, rtol=0.0, atol=self._tolerance(prec), equal_nan=True)
        if allow_inf:
            close = close | (a.abs() == float("inf")) & (b.abs() == float("inf"))
        if not bool(close.all()):
            worst = (a - b).abs().nan_to_num(float("inf"))[~close].max().item()
            self.fail(self._formatMessage(message or None, f"{int((~close).sum())} elements differ by up to {worst}"))

    def assertTensorsSlowEqual(self, x, y, prec=None, message=""):
        """Compare two tensors element by element."""
        unittest.TestCase.assertEqual(self, x.size(), y.size(), message)
        for a, b in zip(x.reshape(-1).tolist(), y.reshape(-1).tolist(), strict=True):
            self.assertLessEqual(abs(a - b), self._tolerance(prec), message)

    def assertEqual(self, x, y, prec=None, message="", allow_inf=False, exact_dtype=None):
        """Compare tensors, arrays, numbers, texts, and containers of them.

        Args:
            prec: how far elements may be apart; never less than ``precision``. A text is taken as the message.
            message: told in front of what differs.
            allow_inf: infinite elements of whatever sign are equal.
            exact_dtype: dtypes have to be equal, too; default the class's ``exact_dtype``.
        """
        if isinstance(prec, str):
            prec, message = None, prec
        if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
            x, y = (torch.as_tensor(v) if isinstance(v, np.ndarray) else v for v in (x, y))
        if isinstance(x, torch.Tensor) or isinstance(y, torch.Tensor):
            self._compare(x, y, prec, message, allow_inf, exact_dtype)
        elif isinstance(x, Mapping) and isinstance(y, Mapping):
            unittest.TestCase.assertEqual(self, set(x), set(y), message)
            for key in x:
                self.assertEqual(x[key], y[key], prec, message, allow_inf, exact_dtype)
        elif _is_sequence(x) and _is_sequence(y):
            unittest.TestCase.assertEqual(self, len(x), len(y), message)
            for a, b in zip(x, y, strict=True):
                self.assertEqual(a, b, prec, message, allow_inf, exact_dtype)
        elif _is_number(x) and _is_number(y):
            if x != y and not (x != x and y != y):
                close = abs(x - y) <= self._tolerance(prec) or (allow_inf and abs(x) == abs(y) == float("inf"))
                self.assertTrue(close, self._formatMessage(message or None, f"{x} != {y}"))
        else:
            unittest.TestCase.assertEqual(self, x, y, message or None)

    def assertNotEqual(self, x, y, prec=None, message=""):
        """The opposite of :meth:`assertEqual`."""
        try:
            self.assertEqual(x, y, prec)
        except AssertionError:
            return
        self.fail(self._formatMessage(message or None, "both are equal"))

    def assertAlmostEqual(self, x, y, places=None, msg=None, delta=None, allow_inf=None):
        """Compare to ``places`` decimals, or to within ``delta``."""
        prec = delta if places is None else 10 ** (-places)
        self.assertEqual(x, y, prec, msg or "", bool(allow_inf))

    def assertObjectIn(self, obj, iterable):
        """Expect that ``obj`` itself, not only its like, is in ``iterable``."""
        if not any(obj is element for element in iterable):
            self.fail(f"object {obj!r} is not in the iterable")

    def assertWarns(self, call_fn, msg=""):
        """Expect at least one warning of ``call_fn()``. Unlike unittest's, it takes the call."""
        self.assertGreater(len(_warned(call_fn)), 0, msg)

    def assertNotWarn(self, call_fn, msg=""):
        """Expect no warning of ``call_fn()``."""
        unittest.TestCase.assertEqual(self, _warned(call_fn), [], msg)

    @contextlib.contextmanager
    def maybeWarnsRegex(self, category, regex=""):
        """Let warnings of ``category`` that match ``regex`` pass unseen; others are shown."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=f".*{regex}" if regex else "", category=category)
            yield

    def assertExpectedRaises(self, exc_type, call_fn, *args, **kwargs):
        """Expect an error of ``exc_type``; its text is compared with that of ``subname``'s former run, if there is one.

        There are no kept texts here: only the type is looked at.
        """
        kwargs.pop("subname", None)
        with self.assertRaises(exc_type):
            call_fn(*args, **kwargs)

    def assertExpectedStripMangled(self, s, subname=None):
        """Compare a text, without the mangled names of scripted classes, with the one that was kept for this test.

        Kept texts are files beside the test's, ``expect/<file>-<Class>.<test>[-<subname>].expect``, as upstream has
        them. EXPECTTEST_ACCEPT=1 writes them.
        """
        text = re.sub(r"__torch__[^ ]+", "", s)
        source = Path(inspect.getfile(type(self)))
        name = f"{source.stem}-{type(self).__name__}.{self._testMethodName}" + (f"-{subname}" if subname else "")
        kept = source.parent / "expect" / f"{name}.expect"
        if os.environ.get("EXPECTTEST_ACCEPT", "0") not in ("", "0"):
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(text, encoding="utf-8")
        if not kept.is_file():
            self.fail(f"there is no {kept} to compare with; EXPECTTEST_ACCEPT=1 writes it. The text is\n{text}")
        self.assertMultiLineEqual(kept.read_text(encoding="utf-8"), text)


def _warned(call) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


def _is_sequence(value) -> bool:
    return isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (str, bytes)) and _is_ordered(value)


def _is_ordered(value: Iterable) -> bool:
    return not isinstance(value, (set, frozenset))


def _is_number(value) -> bool:
    return isinstance(value, (int, float, complex, np.number)) and not isinstance(value, bool)


def run_tests():
    """Run the tests of the calling script; it exits with 0 if they pass."""
    unittest.main(argv=sys.argv)
