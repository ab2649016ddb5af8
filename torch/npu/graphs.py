r"""``torch.npu.graphs``: the names of torch.cuda.graphs. Nothing is captured here; they say so when they are used."""

from . import _refused, is_current_stream_capturing as is_current_stream_capturing

globals().update(_refused.members("torch.npu"))
