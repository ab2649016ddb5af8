"""torch.distributed.tensor.experimental by the plug-in's names."""

from torch.distributed.tensor.experimental import context_parallel

__all__ = ["context_parallel"]
