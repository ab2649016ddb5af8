r"""Names of the plug-in's graph compiler, see torch.npu._refused."""

from .. import _refused

globals().update(_refused.members(__name__))
