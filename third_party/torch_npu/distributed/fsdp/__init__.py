"""torch.distributed.fsdp's fully_shard, by the plug-in's name."""

from torch.distributed.fsdp import fully_shard

__all__ = ["fully_shard"]
