r"""``torch.npu.optim``: optimizers whose step is a few operators, whatever the number of parameters.

Each has the arguments, numbers and state dict of the plain optimizer of its name; ``apex.optimizers`` and
``torch_npu.optim`` are the same. Parameters, gradients and states become parts of flat tensors, see
:class:`NpuFusedOptimizerBase`.
"""

from .npu_fused_adadelta import NpuFusedAdadelta
from .npu_fused_adam import NpuFusedAdam
from .npu_fused_adamp import NpuFusedAdamP
from .npu_fused_adamw import NpuFusedAdamW
from .npu_fused_bert_adam import NpuFusedBertAdam
from .npu_fused_lamb import NpuFusedLamb
from .npu_fused_optim_base import NpuFusedOptimizerBase, npu_fused_clip_grad_norm_
from .npu_fused_rmsprop import NpuFusedRMSprop
from .npu_fused_rmsprop_tf import NpuFusedRMSpropTF
from .npu_fused_sgd import NpuFusedSGD

__all__ = [
    "NpuFusedAdadelta",
    "NpuFusedAdam",
    "NpuFusedAdamP",
    "NpuFusedAdamW",
    "NpuFusedBertAdam",
    "NpuFusedLamb",
    "NpuFusedOptimizerBase",
    "NpuFusedRMSprop",
    "NpuFusedRMSpropTF",
    "NpuFusedSGD",
    "npu_fused_clip_grad_norm_",
]
