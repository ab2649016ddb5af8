"""Copies of tensors between the NPUs of one process, as torch.cuda.comm: see torch.nn.parallel.comm, whose they are."""

from torch.nn.parallel.comm import broadcast, broadcast_coalesced, gather, reduce_add, reduce_add_coalesced, scatter

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]
