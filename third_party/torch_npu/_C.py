"""`torch_npu._C`: the bindings, all of which are torch._C's own."""

import torch

__path__: list[str] = []  # `from torch_npu._C._distributed_c10d import ...` finds torch._C's own modules


def __getattr__(name):
    return getattr(torch._C, name)
