"""torch.distributed.rpc by the plug-in's names."""

from .options import NPUTensorPipeRpcBackendOptions

__all__ = ["NPUTensorPipeRpcBackendOptions"]
