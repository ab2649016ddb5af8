"""BERT's attention as one call: refused, since its layout is nowhere stated."""

from torch.npu import _refused

# The table has the plug-in's names.
globals().update(_refused.members("torch_npu.contrib.function.fused_attention"))
