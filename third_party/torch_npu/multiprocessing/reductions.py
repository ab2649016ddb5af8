"""What the plug-in makes of a tensor that another process sent. Nothing sends one here, and it says why."""

from torch.npu import _refused

globals().update(_refused.members(__name__))
