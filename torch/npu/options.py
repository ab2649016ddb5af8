r"""How CANN compiles operators: :func:`set_option` and the switches of the 1.5-era fork that ported scripts call."""

import logging
import os
import warnings

import torch

_log = logging.getLogger(__name__)


def _one_of(*allowed: str):
    def check(name: str, value: str) -> None:
        if value not in allowed:
            raise ValueError(f"set_option: {name} is one of {', '.join(allowed)}, not {value!r}")

    return check


def _check_bool(what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{what} is a bool, not {type(value).__name__}")


def _directory(name: str, value: str) -> None:
    if not os.path.isdir(value):
        raise ValueError(f"set_option: {name}: there is no directory {value!r}")


def _one_operator(name: str, value: str) -> None:
    if not value.isidentifier():
        raise ValueError(f"set_option: {name} names one operator, such as Pooling or SoftmaxV2, not {value!r}")


_CHECKS = {
    "ACL_OP_SELECT_IMPL_MODE": _one_of("high_precision", "high_performance"),
    "ACL_OPTYPELIST_FOR_IMPLMODE": _one_operator,
    "ACL_OP_DEBUG_LEVEL": _one_of("0", "1", "2", "3", "4"),
    "ACL_DEBUG_DIR": _directory,
    "ACL_OP_COMPILER_CACHE_MODE": _one_of("enable", "disable", "force"),
    "ACL_OP_COMPILER_CACHE_DIR": _directory,
    "ACL_PRECISION_MODE": _one_of(
        "must_keep_origin_dtype", "allow_fp32_to_fp16", "force_fp16", "force_fp32", "allow_mix_precision"
    ),
}
_CACHE = ("ACL_OP_COMPILER_CACHE_MODE", "ACL_OP_COMPILER_CACHE_DIR")
_values = {"ACL_OP_SELECT_IMPL_MODE": "high_precision", "ACL_OP_DEBUG_LEVEL": "0"}

_jit_compile = True
_mm_bmm_format_nd: bool | None = None  # nothing was said: as torch.npu.config.allow_internal_format has it
_compatible_impl = False
_graph_mode = False
_graph_verbose = False
_fuzz_compile_step = 1
_global_step = 0
_fuzzy = False


def set_option(option: dict[str, str | int]) -> None:
    r"""Set compile options; those that are not named keep their value. Nothing is set if one of them is wrong.

    Args:
        option (dict): any of

            - ``ACL_OP_SELECT_IMPL_MODE``: ``high_precision`` (default) or ``high_performance``;
            - ``ACL_OPTYPELIST_FOR_IMPLMODE``: the one operator for which that mode counts, e.g. ``Pooling``;
            - ``ACL_OP_DEBUG_LEVEL``: 0 to 4, what the compiler leaves in its ``kernel_meta`` folder;
            - ``ACL_DEBUG_DIR``: an existing directory for it;
            - ``ACL_OP_COMPILER_CACHE_MODE``: ``enable``, ``disable`` or ``force`` (compile all again), and
            - ``ACL_OP_COMPILER_CACHE_DIR``: an existing directory; these two only together;
            - ``ACL_PRECISION_MODE``: ``must_keep_origin_dtype`` (set at the start where the chip multiplies float32),
              ``allow_fp32_to_fp16``, ``force_fp16``, ``force_fp32`` or ``allow_mix_precision``.

    docs/mixed_precision.md says what each option changes that one can see.

    Raises:
        TypeError: ``option`` is not a dict.
        ValueError: an option is not known, or its value is not allowed.
    """
    if not isinstance(option, dict):
        raise TypeError(f"set_option: the options come as a dict, not as {type(option).__name__}")
    values = {}
    for name, value in option.items():
        if name not in _CHECKS:
            raise ValueError(f"set_option: {name!r} is not an option; there are {', '.join(_CHECKS)}")
        values[name] = str(value)
        _CHECKS[name](name, values[name])
    if len([name for name in _CACHE if name in values]) == 1:
        raise ValueError(f"set_option: {_CACHE[0]} and {_CACHE[1]} are only set together")

    def apply() -> None:
        for name, value in values.items():
            torch._C._npu_setOption(name, value)

    torch.npu._lazy_call(apply)
    _values.update(values)


def get_option(name: str) -> str | None:
    r"""Return the value of an option of :func:`set_option`, None if it has none.

    Raises:
        ValueError: there is no option of that name.
    """
    if name not in _CHECKS:
        raise ValueError(f"get_option: {name!r} is not an option; there are {', '.join(_CHECKS)}")
    return _values.get(name)


class _Hf32:
    r"""Whether a kind of operators may compute float32 in HF32, CANN's shorter format, which is faster.

    HF32 keeps the exponent of float32 and 11 bits of its fraction. Operands are rounded to it, sums stay float32. The
    switches reach the device when one of them is set. The simulated device rounds only where a switch was set to True:
    what is allowed by default, convolutions, it computes in float32.
    """

    _allowed = {"conv": True, "matmul": False}  # CANN's order, and its defaults
    _was_set = {"conv": False, "matmul": False}

    def __init__(self, kind: str):
        self._kind = kind

    @property
    def allow_hf32(self) -> bool:
        return self._allowed[self._kind]

    @allow_hf32.setter
    def allow_hf32(self, value: bool) -> None:
        _check_bool(f"torch.npu.{self._kind}.allow_hf32", value)
        self._allowed[self._kind] = value
        self._was_set[self._kind] = True
        torch.npu._lazy_call(self._send)

    @classmethod
    def _send(cls) -> None:
        simulated = torch._C._npu_isSimulator()
        digits = [str(int(on and (cls._was_set[kind] or not simulated))) for kind, on in cls._allowed.items()]
        torch._C._npu_setOption("ACL_ALLOW_HF32", "".join(digits))

    def __repr__(self) -> str:
        return f"torch.npu.{self._kind}: allow_hf32 = {self.allow_hf32}"


conv = _Hf32("conv")
r"""``conv.allow_hf32`` (default True): whether convolutions may compute float32 in HF32."""
matmul = _Hf32("matmul")
r"""``matmul.allow_hf32`` (default False): whether matrix products may compute float32 in HF32."""


def set_compile_mode(jit_compile: bool = False) -> None:
    r"""Say whether operators are compiled for each shape (True) or taken from CANN's binary packages (False).

    On the simulated device, which has no packages, False compiles each operator for all shapes of a rank at once.

    Raises:
        TypeError: ``jit_compile`` is not a bool.
    """
    _check_bool("set_compile_mode: jit_compile", jit_compile)
    global _jit_compile
    value = "enable" if jit_compile else "disable"
    torch.npu._lazy_call(lambda: torch._C._npu_setOption("ACL_OP_JIT_COMPILE", value))
    _jit_compile = jit_compile


def is_jit_compile_false() -> bool:
    r"""Return whether :func:`set_compile_mode` was told not to compile operators for each shape."""
    return not _jit_compile


def set_mm_bmm_format_nd(is_nd: bool = True) -> None:
    r"""Say whether linear layers keep their weights in the plain format where others get the cube unit's.

    It counts for :func:`torch.npu.config.cast_weight`, while :data:`torch.npu.config.allow_internal_format` is True.

    Raises:
        TypeError: ``is_nd`` is not a bool.
    """
    global _mm_bmm_format_nd
    _check_bool("set_mm_bmm_format_nd: is_nd", is_nd)
    _mm_bmm_format_nd = is_nd


def get_mm_bmm_format_nd() -> bool:
    r"""Return whether the weights of linear layers keep the plain format; see :func:`set_mm_bmm_format_nd`."""
    if _mm_bmm_format_nd is None:
        return not torch.npu.config.allow_internal_format
    return _mm_bmm_format_nd


def use_compatible_impl(is_enable: bool) -> None:
    r"""Would choose, on a card, operators that agree with upstream's to the last detail; here they all do.

    Raises:
        TypeError: ``is_enable`` is not a bool.
    """
    global _compatible_impl
    _check_bool("use_compatible_impl: is_enable", is_enable)
    _compatible_impl = is_enable


def are_compatible_impl_enabled() -> bool:
    r"""Return what :func:`use_compatible_impl` was told last, at first False."""
    return _compatible_impl


def current_blas_handle() -> None:
    r"""Return None, with a warning: CANN's matrix products have no handle."""
    warnings.warn("torch.npu.current_blas_handle: the matrix products of an NPU have no handle", stacklevel=2)


def _update_fuzzy_compile() -> None:
    global _fuzzy
    wanted = _global_step >= _fuzz_compile_step
    if wanted != _fuzzy:
        _fuzzy = wanted
        torch.npu._lazy_call(lambda: torch._C._npu_setFuzzyCompile(wanted))


def set_start_fuzz_compile_step(step: int) -> None:
    r"""Compile operators for ranges of shapes (CANN's fuzzy compilation) from the ``step``-th training step on.

    Steps are counted by :func:`global_step_inc`, whose first call is step 1, the default here. An operator that has
    been compiled for a range needs no compilation for another shape of the same rank and dtype, so that training with
    changing shapes compiles no longer. ``DISABLE_DYNAMIC_PATH`` names a file with one IR operator per line that stay
    compiled for exact shapes; ``DYNAMIC_OP="ADD#MUL"`` names some that are always compiled for ranges;
    ``DYNAMIC_COMPILE_ENABLE=1`` compiles for ranges without counting steps.

    Raises:
        TypeError: ``step`` is not an int.
        ValueError: ``step`` is not positive.
    """
    global _fuzz_compile_step
    if not isinstance(step, int) or isinstance(step, bool):
        raise TypeError(f"set_start_fuzz_compile_step: the step is an int, not {type(step).__name__}")
    if step < 1:
        raise ValueError(f"set_start_fuzz_compile_step: the step is positive, not {step}")
    _fuzz_compile_step = step


def global_step_inc() -> None:
    r"""Count one training step; see :func:`set_start_fuzz_compile_step`."""
    global _global_step
    _global_step += 1
    _update_fuzzy_compile()


def enable_graph_mode(verbose: bool = False) -> None:
    r"""Gather operators and send them to the NPU as smaller graphs: lazily, with the numbers of eager mode.

    Operators of all threads are kept on the host until a value is needed (``item()``, a copy to the CPU), the host
    synchronises, an event or another stream comes in, :func:`launch_graph` is called, or some dozens are gathered. Then
    results that nobody needs are dropped, element-wise operators that follow one another become one operator, whose
    intermediate results are never written, and the rest goes as it came. docs/graph_mode.md says more.

    While a profiler, the overflow check or anything else watches operators, each is sent at the call.

    Args:
        verbose (bool): log in :func:`launch_graph` and :func:`disable_graph_mode` how many operators were gathered, and
            what became of them.

    Raises:
        TypeError: ``verbose`` is not a bool.
    """
    global _graph_mode, _graph_verbose
    _check_bool("enable_graph_mode: verbose", verbose)
    _graph_verbose = verbose
    if not _graph_mode:
        torch.npu._lazy_call(torch._C._npu_enableGraphMode)
    _graph_mode = True


def _tell_graphs(what: str) -> None:
    if _graph_verbose:
        counts = torch._C._npu_graphCounts()
        _log.warning("%s: %s", what, ", ".join(f"{name} {count}" for name, count in counts.items()))


def disable_graph_mode() -> None:
    r"""Leave the mode of :func:`enable_graph_mode`, after what was gathered is launched and the current NPU is done.

    Raises:
        RuntimeError: an operator of the graph has failed; the message names it.
    """
    global _graph_mode
    if _graph_mode:
        _graph_mode = False
        torch._C._npu_disableGraphMode()
        _tell_graphs("disable_graph_mode")
        torch.npu.synchronize()


def is_graph_mode() -> bool:
    r"""Return whether :func:`enable_graph_mode` is in force."""
    return _graph_mode


def launch_graph() -> None:
    r"""Launch what was gathered in graph mode, and wait for it.

    Raises:
        RuntimeError: graph mode is off, or an operator of the graph has failed; the message names it.
    """
    if not _graph_mode:
        raise RuntimeError("launch_graph: graph mode is off; call torch.npu.enable_graph_mode() first")
    torch._C._npu_launchGraph()
    _tell_graphs("launch_graph")
    torch.npu.synchronize()


def set_aoe(dump_path: str) -> None:
    r"""Write the graph of each operator that is launched from now on, for CANN's tuning (AOE).

    ``aoe --job_type=2 --model_path=DUMP_PATH`` tunes them on a card, ``python -m torch.npu.aoe`` with the same options
    on the simulated device; what it finds out makes later runs faster. While graphs are written, operators are sent one
    by one, in graph mode too. docs/graph_mode.md says more.

    Args:
        dump_path (str): the folder for the files, which exists; an operator that comes again has one file.

    Raises:
        TypeError: ``dump_path`` is not a str.
        ValueError: there is no such folder.
        RuntimeError: CANN's release cannot write graphs of single operators.
    """
    if not isinstance(dump_path, str):
        raise TypeError(f"set_aoe: dump_path is a str, not {type(dump_path).__name__}")
    if not os.path.isdir(dump_path):
        raise ValueError(f"set_aoe: there is no directory {dump_path!r}")
    folder = os.path.abspath(dump_path)
    torch.npu._lazy_call(lambda: torch._C._npu_setAoe(folder))
