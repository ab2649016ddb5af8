r"""The fused optimizers of ``torch.npu.optim``; those of apex that are CUDA kernels say what takes their place."""

from torch.npu.optim import (
    NpuFusedAdadelta,
    NpuFusedAdam,
    NpuFusedAdamP,
    NpuFusedAdamW,
    NpuFusedBertAdam,
    NpuFusedLamb,
    NpuFusedRMSprop,
    NpuFusedRMSpropTF,
    NpuFusedSGD,
    npu_fused_clip_grad_norm_,
)

from .lamb import Lamb

__all__ = [
    "Lamb",
    "NpuFusedAdadelta",
    "NpuFusedAdam",
    "NpuFusedAdamP",
    "NpuFusedAdamW",
    "NpuFusedBertAdam",
    "NpuFusedLamb",
    "NpuFusedRMSprop",
    "NpuFusedRMSpropTF",
    "NpuFusedSGD",
    "npu_fused_clip_grad_norm_",
]
# Name in the original -> what to write instead.
_INSTEAD = {
    "FusedSGD": "NpuFusedSGD",
    "FusedAdam": "NpuFusedAdamW (or NpuFusedAdam for adam_w_mode=False)",
    "FusedLAMB": "NpuFusedLamb",
    "FusedMixedPrecisionLamb": "NpuFusedLamb",
    "FusedNovoGrad": "torch.optim.Adam",
    "FusedAdagrad": "torch.optim.Adagrad",
}


def __getattr__(name: str):
    if name in _INSTEAD:
        raise ImportError(f"apex.optimizers.{name} is a CUDA kernel; on npu use {_INSTEAD[name]}")
    raise AttributeError(f"module 'apex.optimizers' has no attribute '{name}'; it has {', '.join(__all__)}")
