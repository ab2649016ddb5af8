"""Operator dump: what every aten operator got and gave, on CPU, npu and cuda, in one HDF5 file.

After ``import torch`` the name ``torch.utils.dumper`` is the class :class:`dumper` (``torch.utils`` binds it after
importing this package); ``from torch.utils.dumper import replay`` reaches the package's other names, which the class
has as attributes as well. ``import torch`` imports this module, hence everything else is imported when first needed.
"""

from ._context import dumper

__all__ = ["compare_network", "dumper", "hook_network", "parameter_report", "replay", "write_unittest"]

_LAZY = {
    "replay": "_replay",
    "write_unittest": "_unittest_writer",
    "hook_network": "network",
    "compare_network": "network",
    "parameter_report": "network",
}


def __getattr__(name):
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
