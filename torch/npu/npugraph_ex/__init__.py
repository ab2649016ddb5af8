r"""``torch.npu.npugraph_ex``: the names of the plug-in's graph compiler, which say that it is not part of this."""

from .. import _refused
from . import inference as inference, scope as scope

globals().update(_refused.members(__name__))
