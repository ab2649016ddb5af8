"""Batch norms that count batches in 32 bits, which a card adds faster than 64."""

import torch


class _Int32Count(torch.nn.modules.batchnorm._NormBase):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked = self.num_batches_tracked.to(torch.int32)


class FastBatchNorm1d(_Int32Count, torch.nn.BatchNorm1d):
    """torch.nn.BatchNorm1d with ``num_batches_tracked`` of int32; checkpoints of the one load into the other."""


class FastBatchNorm2d(_Int32Count, torch.nn.BatchNorm2d):
    """torch.nn.BatchNorm2d with ``num_batches_tracked`` of int32; checkpoints of the one load into the other."""


class FastBatchNorm3d(_Int32Count, torch.nn.BatchNorm3d):
    """torch.nn.BatchNorm3d with ``num_batches_tracked`` of int32; checkpoints of the one load into the other."""


class FastSyncBatchNorm(_Int32Count, torch.nn.SyncBatchNorm):
    """torch.nn.SyncBatchNorm with ``num_batches_tracked`` of int32; checkpoints of the one load into the other."""
