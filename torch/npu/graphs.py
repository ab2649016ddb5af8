r"""``torch.npu.graphs``: the names of torch.cuda.graphs. Nothing is captured here; they say so when they are used."""

from . import _refused, is_current_stream_capturing as is_current_stream_capturing

globals().update(_refused.members("torch.npu"))
__all__ = [
    "NPUGraph",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "super_kernel_scope_begin",
    "super_kernel_scope_end",
]
