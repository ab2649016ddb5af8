r"""``torch.npu.amp.common``: where torch.cuda.amp's module of this name has its part."""

from . import amp_definitely_not_available

__all__ = ["amp_definitely_not_available"]
