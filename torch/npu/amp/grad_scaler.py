r"""``torch.npu.amp.grad_scaler``: where torch.cuda.amp's module of this name has its parts."""

from torch.amp.grad_scaler import OptState

from . import GradScaler

__all__ = ["GradScaler", "OptState"]
