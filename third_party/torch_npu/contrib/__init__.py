"""`torch_npu.contrib`: parts of common models, and `transfer_to_npu`. Both packages' names are here, too."""

from . import function as function, module as module
from .function import *  # noqa: F403
from .module import *  # noqa: F403

__all__ = [*function.__all__, *module.__all__]
