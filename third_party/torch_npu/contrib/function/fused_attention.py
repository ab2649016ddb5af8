"""BERT's attention as one call: refused, since its layout is nowhere stated."""

from torch.npu import _refused

globals().update(_refused.members(__name__))
