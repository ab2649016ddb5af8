"""`torch_npu.contrib`: torch.contrib.npu.optimized_lib's functions and modules, and `transfer_to_npu`."""

from . import function as function, module as module
from .function import *  # noqa: F403
from .module import *  # noqa: F403

__all__ = [*function.__all__, *module.__all__]
