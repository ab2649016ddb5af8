r"""``torch.npu.amp.autocast_mode``: where torch.cuda.amp's module of this name has its parts."""

from . import autocast, custom_bwd, custom_fwd

__all__ = ["autocast", "custom_bwd", "custom_fwd"]
