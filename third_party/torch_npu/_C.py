"""`torch_npu._C`: the bindings, all of which are torch._C's own."""

import torch


def __getattr__(name):
    return getattr(torch._C, name)
