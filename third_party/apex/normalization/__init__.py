r"""Nothing of apex.normalization runs on an npu; an import says what to use instead."""

_INSTEAD = {
    "FusedLayerNorm": "from torch.nn import LayerNorm",
    "MixedFusedLayerNorm": "from torch.nn import LayerNorm",
    "FusedRMSNorm": "from torch.nn import RMSNorm",
    "MixedFusedRMSNorm": "from torch.nn import RMSNorm",
}


def __getattr__(name: str):
    if name in _INSTEAD:
        raise ImportError(
            f"apex.normalization.{name} is a CUDA kernel, which an npu does not have: replace the import by "
            f"`{_INSTEAD[name]}`"
        )
    raise AttributeError(f"module 'apex.normalization' has no attribute '{name}'")
