"""What the tests of sparse tensors share: samples, copies to a device, and comparison with the CPU."""

import os
import warnings

from common_utils import TestCase

import torch
from torch.utils import _pytree as pytree

DEVICE = "npu"


def allow_the_cpu():
    """For a module's setUpModule."""
    # Other tests of the same process forbid the CPU; some sparse operators run there.
    os.environ.pop("NPU_FALLBACK", None)
    for text in (
        "is not currently supported on the NPU backend",
        "Sparse CSR tensor support",
        "Sparse B.. tensor support",
    ):
        warnings.filterwarnings("ignore", message=f".*{text}")
    warnings.filterwarnings("ignore", message="Sparse (CSC|invariant)")


def coo(dtype=torch.float32, coalesced=True):
    """(3, 4) with an index twice, unless it is coalesced."""
    indices = torch.tensor([[0, 1, 1, 2, 2], [2, 0, 0, 1, 3]])
    made = torch.sparse_coo_tensor(indices, torch.tensor([1, 2, 3, -4, 5]).to(dtype), (3, 4))
    return made.coalesce() if coalesced else made


def dense(t):
    return t.detach().cpu().to_dense() if t.layout is not torch.strided else t.detach().cpu()


def placed(value, device):
    """A sample on the device; what says "cpu" says the device."""

    def one(x):
        if isinstance(x, torch.Tensor):
            return x.detach().to(device)
        return torch.device(device) if x in ("cpu", torch.device("cpu")) else x

    return pytree.tree_map(lambda x: one(x) if isinstance(x, (torch.Tensor, str, torch.device)) else x, value)


class SparseCase(TestCase):
    def check(self, actual, expected, tolerance=None):
        actual, expected = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
        self.assertEqual(len(actual), len(expected))
        for a, e in zip(actual, expected, strict=True):
            if not isinstance(e, torch.Tensor):
                self.assertEqual(a, e)
                continue
            self.assertEqual((a.device.type, a.dtype, a.shape, a.layout), (DEVICE, e.dtype, e.shape, e.layout))
            if e.layout is torch.sparse_coo:
                self.assertTrue(a.is_coalesced() or not e.is_coalesced())
                self.assertEqual(a.sparse_dim(), e.sparse_dim())
            if e.layout is not torch.strided and (e.layout is not torch.sparse_coo or e.is_coalesced()):
                self.assertEqual(a._nnz(), e._nnz())
            options = {"rtol": tolerance, "atol": tolerance} if tolerance else {}
            torch.testing.assert_close(dense(a), dense(e), equal_nan=True, **options)

    def compare(self, function, *arguments, tolerance=None):
        """`function` on the CPU and on npu."""
        self.check(function(*placed(arguments, DEVICE)), function(*arguments), tolerance)
