r"""What today's plug-in offers and nothing here stands for: each name is there, and raises one error with the reason.

:data:`GROUPS` is the one table. docs/plugin_names.md prints it, tools/api_parity.py takes its reasons, and the modules
make their functions and classes of it by :func:`function` and :func:`refused_class`.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, NoReturn

# A reason, and the names that share it, with the plug-in's arguments.
GROUPS: tuple[tuple[str, str], ...] = (
    (
        "operators of a graph are not fused into super kernels here; a replay runs them one after another",
        """
        torch.npu.NPUGraph.super_kernel_optimize(self, optimize_options=None, debug_options=None)
        torch.npu.super_kernel_scope_begin(scope_name=None)
        torch.npu.super_kernel_scope_end(scope_name=None)
        """,
    ),
    (
        "a captured graph is AscendCL's own object, not CUDA's; NPUGraph.debug_dump writes its tasks",
        """
        torch.npu.NPUGraph.raw_cuda_graph(self)
        torch.npu.NPUGraph.raw_cuda_graph_exec(self)
        torch.npu.NPUGraph.get_graph_data(self)
        """,
    ),
    (
        "it belongs to the plug-in's graph compiler, which is not part of this; torch.compile compiles models",
        """
        torch.npu.npugraph_ex.inference.cache_compile(func, *, dynamic=True, cache_dir=None, global_rank=None,
            tp_rank=None, pp_rank=None, **kwargs)
        torch.npu.npugraph_ex.inference.readable_cache(cache_bin, print_output=True, file=None)
        """,
    ),
    (
        "model obfuscation needs the confidential-computing engine on the host of a card",
        """
        torch.npu.obfuscation_initialize(hidden_size, tp_rank, cmd, *, data_type=None, model_obf_seed_id=0,
            data_obf_seed_id=0, thread_num=4, obf_coefficient=1.0)
        torch.npu.obfuscation_calculate(fd, x, param, *, obf_coefficient=1.0)
        torch.npu.obfuscation_finalize(fd_to_close)
        """,
    ),
    (
        "it finds and repairs faults of a card's hardware, for which there is no AscendCL function in use here",
        """
        torch.npu.check_uce_in_memory(device_id)
        torch.npu.restart_device(device_id, rebuild_all_resources=False, disable_tensor_unsafe_check=False)
        torch.npu.stop_device(device_id)
        """,
    ),
    (
        "the run-time library is no Python module here; its errors are raised as torch.AcceleratorError",
        """
        torch.npu.npurt()
        """,
    ),
    (
        "memory and events of an NPU are not shared between processes here; send a copy in host memory",
        """
        torch.npu.Event.ipc_handle(self)
        torch.npu.Event.from_ipc_handle(device, handle)
        torch_npu.multiprocessing.reductions.rebuild_npu_event(device, handle)
        torch_npu.multiprocessing.reductions.rebuild_npu_tensor(tensor_cls, tensor_size, tensor_stride, tensor_offset,
            storage_cls, dtype, storage_device, storage_handle, storage_size_bytes, storage_offset_bytes,
            requires_grad, ref_counter_handle, ref_counter_offset, event_handle, event_sync_required)
        """,
    ),
)  # fmt: skip


def _read() -> dict[str, tuple[str, str]]:
    table = {}
    for reason, rows in GROUPS:
        for row in re.findall(r"\S[^()]*\([^()]*\)", rows):  # some take several lines
            name, _, arguments = " ".join(row.split()).partition("(")
            table[name] = (f"({arguments}", reason)
    return table


# The full name of each to its arguments and the reason.
TABLE = _read()


def refuse(name: str) -> NoReturn:
    r"""Raise the error of a name in the table."""
    raise NotImplementedError(f"{name} is not available: {TABLE[name][1]}")


def function(name: str) -> Callable[..., Any]:
    r"""Return a function with the arguments of a name in the table that raises its error."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(name)

    arguments, reason = TABLE[name]
    # The arguments stand in the table as Python spells them.
    refused.__signature__ = inspect.signature(eval(f"lambda {arguments[1:-1]}: None"))  # type: ignore[attr-defined]
    owner, _, refused.__name__ = name.rpartition(".")
    refused.__qualname__, refused.__module__ = refused.__name__, owner
    refused.__doc__ = f"Not available: {reason}.\n\nRaises:\n    NotImplementedError: always."
    return refused


def refused_class(name: str) -> type:
    r"""Return a class that cannot be made; its methods are those of the table."""
    methods: dict[str, Any] = {}
    for full in TABLE:
        owner, _, leaf = full.rpartition(".")
        if owner == name:
            made = function(full)
            methods[leaf] = made if TABLE[full][0].startswith("(self") else staticmethod(made)
    made = function(name)
    plain = made.__signature__  # type: ignore[attr-defined]
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    made.__signature__ = plain.replace(parameters=[this, *plain.parameters.values()])  # type: ignore[attr-defined]
    owner, _, leaf = name.rpartition(".")
    return type(leaf, (), {**methods, "__init__": made, "__module__": owner, "__doc__": made.__doc__})


@functools.cache
def members(module: str) -> dict[str, Any]:
    r"""Return the functions and classes of the table that a module has directly, by name: the same ones each time."""
    found: dict[str, Any] = {}
    for full in TABLE:
        owner, _, leaf = full.rpartition(".")
        if owner == module:
            is_class = any(other.startswith(f"{full}.") for other in TABLE)
            found[leaf] = refused_class(full) if is_class else function(full)
    return found
