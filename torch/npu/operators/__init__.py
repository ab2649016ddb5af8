r"""
The operators ``npu_*`` that are composed of upstream's operators in Python.

An operator here is a function of tensors with a schema (see :mod:`._registration`). It is registered as
CompositeImplicitAutograd, so autograd, fake tensors, torch.compile and export see the operators that it is made of; on
a card these run one after another. An operator that is worth a kernel of its own stands in the operator table instead
(``aten/src/ATen/native/npu/<family>/npu_native_functions.yaml``).

A family is a module, and is imported when one of its operators is looked up for the first time: ``import torch`` pays
for none of them. So TorchScript, and C++ that asks the dispatcher for a name, find an operator only after
``torch.ops.npu.<name>`` was looked up once.
"""

import importlib

from torch._ops import _OpNamespace

import torch

# What each module defines. Overloads belong to their operator's name.
FAMILIES: dict[str, tuple[str, ...]] = {
    "routing": ("npu_moe_gating_top_k",),
}
OPERATORS: dict[str, str] = {name: family for family, names in FAMILIES.items() for name in names}


class _NpuNamespace(_OpNamespace):
    r"""``torch.ops.npu``: imports an operator's family when the operator is looked up."""

    # Operators take the name under which a traced graph calls them from here.
    __module__ = _OpNamespace.__module__

    def __getattr__(self, op_name):
        family = OPERATORS.get(op_name)
        if family is not None:
            importlib.import_module(f"{__name__}.{family}")
        return super().__getattr__(op_name)

    def __dir__(self):
        return sorted({*super().__dir__(), *OPERATORS})


def attach() -> None:
    r"""Makes ``torch.ops.npu`` the namespace that knows the operators of this package."""
    torch.ops.npu = _NpuNamespace("npu")
