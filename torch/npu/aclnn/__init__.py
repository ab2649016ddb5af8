r"""``torch.npu.aclnn``: the plug-in's switch of CANN's operator library."""

import sys
import types

import torch

from . import backends as backends
from .backends import version as version


class _Module(types.ModuleType):
    # One switch under two names: what convolutions may compute in.
    @property
    def allow_hf32(self) -> bool:
        return torch.npu.conv.allow_hf32

    @allow_hf32.setter
    def allow_hf32(self, value: bool) -> None:
        torch.npu.conv.allow_hf32 = value


sys.modules[__name__].__class__ = _Module
