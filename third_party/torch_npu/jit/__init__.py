"""`torch_npu.jit`: rewriting of scripted and traced models."""

from .register_fusion_pattern import optimize

__all__ = ["optimize"]
