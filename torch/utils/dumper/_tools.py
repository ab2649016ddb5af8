# The comparer's tolerances, shared with tools/msaccucmp, which must work without torch and therefore keeps them.
"""Access to the modules of msaccucmp."""

import functools
import importlib.util
import os
import sys

import torch


@functools.cache
def folder() -> str:
    """The folder of msaccucmp: in the installation, else in the source tree that this package is linked from."""
    here = os.path.dirname(os.path.realpath(__file__))
    homes = (
        os.path.join(os.path.dirname(torch.__file__), "tools", "operator_cmp", "compare"),
        os.path.join(here, "..", "..", "..", "tools", "msaccucmp"),
    )
    for home in homes:
        if os.path.isfile(os.path.join(home, "metrics.py")):
            return os.path.normpath(home)
    raise RuntimeError("torch.utils.dumper: msaccucmp (torch/tools/operator_cmp/compare) is not in this installation")


@functools.cache
def metrics():
    """The module msaccucmp/metrics.py."""
    spec = importlib.util.spec_from_file_location(f"{__package__}._metrics", os.path.join(folder(), "metrics.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compare(mine: torch.Tensor, truth: torch.Tensor, rtol=None, atol=None, autocast=""):
    """metrics.Result for two tensors on any devices; `autocast` is the dtype that they were computed in, if known."""
    from . import _values

    m = metrics()
    names = _values.dtype_name(mine.dtype), _values.dtype_name(truth.dtype)
    limits = m.tolerance(*names, autocast or "bool", rtol=rtol, atol=atol)
    measured = ("CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance")
    return m.compare(_plain(mine), _plain(truth), limits, measured)


def _plain(tensor: torch.Tensor):
    """A numpy array that can be computed with."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype is torch.complex32:
        tensor = tensor.to(torch.complex64)
    elif tensor.dtype is torch.bfloat16 or tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        tensor = tensor.float()
    return tensor.numpy()
