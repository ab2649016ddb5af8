r"""``torch.npu.graphs``: work that is captured once and replayed by one launch, with the names of torch.cuda.graphs.

docs/graphs.md says what can be captured. On a card CANN captures (9.0 or later), elsewhere the simulated NPU.
"""

import gc
from types import TracebackType
from typing import Any

from torch._C import _npu_graph_pool_handle, _npu_isCurrentStreamCapturing, _NPUGraph

import torch

from . import _refused
from ._graph_inputs import InputTracker
from ._graph_updates import (
    GraphUpdates,
    NpuGraphOpHandler as NpuGraphOpHandler,
    graph_task_group_begin as graph_task_group_begin,
    graph_task_group_end as graph_task_group_end,
    graph_task_update_begin as graph_task_update_begin,
    graph_task_update_end as graph_task_update_end,
    register_npu_graph_handler as register_npu_graph_handler,
)
from ._graphed_callables import make_graphed_callables as make_graphed_callables

__all__ = [
    "NPUGraph",
    "NpuGraphOpHandler",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "register_npu_graph_handler",
]

# What the plug-in has beyond that: each says why it is not here.
globals().update(
    {name: value for name, value in _refused.members("torch.npu").items() if name.startswith("super_kernel")}
)


def is_current_stream_capturing() -> bool:
    r"""Return whether the current stream is being captured into a graph; opens no device."""
    return _npu_isCurrentStreamCapturing()


def graph_pool_handle() -> tuple[int, int]:
    r"""Return the id of a new memory pool for graphs that are to share memory.

    Graphs may share a pool if they are replayed in the order of their captures and what one of them leaves is read
    before the next one is replayed.
    """
    return _npu_graph_pool_handle()


class NPUGraph(_NPUGraph):
    r"""A graph of captured work, as :class:`torch.cuda.CUDAGraph` is; capture it with :class:`torch.npu.graph`.

    Args:
        keep_graph (bool): the graph is made ready by :meth:`instantiate` or its first replay, not by ``capture_end``.
            AscendCL has one object for both, so nothing else differs.
    """

    _tracker: InputTracker | None
    _updates: GraphUpdates | None

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(keep_graph)
        self._tracker = None
        self._updates = None

    def capture_begin(
        self,
        pool: tuple[int, int] | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        r"""Begin to capture what is put on the current stream, which must not be a default stream.

        Args:
            pool: the memory pool, from :func:`graph_pool_handle` or another graph's :meth:`pool`. Default: its own.
            capture_error_mode (str): who may call what a capture forbids (synchronous copies and the like) meanwhile:
                with ``"global"`` no thread, with ``"thread_local"`` all but this one, with ``"relaxed"`` every thread.
            check_input_liveness (bool): remember which tensors from outside the graph reads; :meth:`replay` raises
                RuntimeError if one of them has been freed.

        Raises:
            RuntimeError: the graph holds a capture already, or the stream cannot be captured.
        """
        self._forget_inputs()
        super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)
        if check_input_liveness:
            self._tracker = InputTracker()
            self._tracker.start()

    def capture_end(self) -> None:
        r"""End the capture. After it the graph can be replayed.

        Raises:
            RuntimeError: something made the capture invalid; the text says what. The graph is empty then.
        """
        if self._tracker is not None:
            self._tracker.stop()
        super().capture_end()

    def instantiate(self) -> None:
        r"""Make a graph with ``keep_graph=True`` ready for replays."""
        super().instantiate()

    def replay(self) -> None:
        r"""Run the graph on the current stream; does not wait for it."""
        if self._tracker is not None:
            self._tracker.check()
        super().replay()
        if self._updates is not None:
            self._updates.replayed()

    def reset(self) -> None:
        r"""Free the graph and let go of its memory pool. The object can be used for another capture."""
        self._forget_inputs()
        self._updates = None
        super().reset()

    def pool(self) -> tuple[int, int]:
        r"""Return the id of the graph's memory pool, for captures that are to share it."""
        return super().pool()

    def register_generator_state(self, generator: torch.Generator) -> None:
        r"""Let captured work draw from a generator, besides the device's default one. Call it before the capture.

        Each replay draws the numbers that come next in the generator's sequence, and moves it on.
        """
        super().register_generator_state(generator)

    def enable_debug_mode(self) -> None:
        r"""Do nothing: every graph can be dumped."""
        super().enable_debug_mode()

    def debug_dump(self, debug_path: str) -> None:
        r"""Write the graph's tasks as JSON for chrome://tracing to the file ``debug_path``."""
        super().debug_dump(debug_path)

    def _forget_inputs(self) -> None:
        if self._tracker is not None:
            self._tracker.stop()
            self._tracker = None

    def update(self, cpu_update_input: list[dict[str, Any]]) -> None:
        r"""Give captured operators other arguments, for the replays from now on; waits for the last replay.

        The operators are those that have a handler (:func:`torch.npu.register_npu_graph_handler`): attention over a
        cache (``npu_fused_infer_attention_score`` and its second version), and what is registered. Their tensors, those
        that they returned too, are kept as long as the graph.

        Args:
            cpu_update_input: for each of them, in the order of the capture, new arguments by name, such as
                ``{"actual_seq_lengths_kv": [7, 9]}``; a list of one entry is for all.

        Raises:
            RuntimeError: the graph was not captured with ``auto_dispatch_capture=True``, or the number of entries is
                not that of the operators.
        """
        if self._updates is None:
            raise RuntimeError(
                "NPUGraph.update: capture the graph by torch.npu.graph(g, auto_dispatch_capture=True) to update it"
            )
        self._updates.update(cpu_update_input)

    super_kernel_optimize = _refused.function("torch.npu.NPUGraph.super_kernel_optimize")
    raw_cuda_graph = _refused.function("torch.npu.NPUGraph.raw_cuda_graph")
    raw_cuda_graph_exec = _refused.function("torch.npu.NPUGraph.raw_cuda_graph_exec")
    get_graph_data = _refused.function("torch.npu.NPUGraph.get_graph_data")


class graph:
    r"""Context manager that captures the work of its body into a graph, as :class:`torch.cuda.graph` does.

    The body runs once on the host, and nothing of it on the device before a replay. If it raises, the capture ends, the
    graph stays empty, and the exception goes on.

    Args:
        npu_graph (NPUGraph): takes the work.
        pool: the memory pool, from :func:`graph_pool_handle` or another graph's :meth:`NPUGraph.pool`.
        stream (torch.npu.Stream): is captured. Default: one that all captures share.
        auto_dispatch_capture (bool): make arguments of some operators changeable later, see :meth:`NPUGraph.update`.
        capture_error_mode (str), check_input_liveness (bool): as in :meth:`NPUGraph.capture_begin`.

    Raises:
        RuntimeError: the body did what cannot be captured, at the call that did it or at the end.
    """

    default_capture_stream: dict[int, "torch.npu.Stream"] = {}

    def __init__(
        self,
        npu_graph: NPUGraph,
        pool: tuple[int, int] | None = None,
        stream: "torch.npu.Stream | None" = None,
        auto_dispatch_capture: bool = False,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        if stream is None:
            device = torch.npu.current_device()
            if device not in self.default_capture_stream:
                self.default_capture_stream[device] = torch.npu.Stream(device)
            stream = self.default_capture_stream[device]
        self.pool = pool
        self.capture_stream = stream
        self.stream_ctx = torch.npu.stream(stream)
        self.npu_graph = npu_graph
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness
        self._updates = GraphUpdates() if auto_dispatch_capture else None

    def __enter__(self) -> None:
        torch.npu.synchronize()
        # The graph keeps what it takes, so what is free is given back first.
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        torch.npu.empty_cache()
        torch.npu.host_empty_cache()
        self.stream_ctx.__enter__()
        try:
            self.npu_graph.capture_begin(
                pool=self.pool,
                capture_error_mode=self.capture_error_mode,
                check_input_liveness=self.check_input_liveness,
            )
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise
        if self._updates is not None:
            self._updates.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._updates is not None:
            self._updates.__exit__(kind, error, trace)
        try:
            self.npu_graph.capture_end()
            if kind is not None:
                self.npu_graph.reset()  # half of the work is no graph
            else:
                self.npu_graph._updates = self._updates
        except RuntimeError:
            # What the body raised says more than that the capture came to nothing.
            if kind is None:
                raise
        finally:
            self.stream_ctx.__exit__(kind, error, trace)
