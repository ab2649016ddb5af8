# The other road of porting: import this module and an unmodified CUDA script runs on npu. Names of torch.cuda are
# replaced by the table of the porting tool; device strings and objects are translated by a TorchFunctionMode, so that
# torch.device, torch.zeros and all other builtins stay what they are for torch.jit.script and isinstance.
r"""Run an unmodified CUDA script on npu by patching at run time.

    import torch
    import torch.npu.transfer_to_npu   # from torch_npu.contrib import transfer_to_npu; or TORCH_TRANSFER_TO_NPU=1

    model = Net().cuda()               # on npu
    x = torch.zeros(2, device="cuda:1")  # on npu:1

``torch.cuda.*``, device strings and objects, ``Tensor.cuda``, ``Tensor.is_cuda``, ``torch.load``, ``torch.Generator``,
``torch.Event``, ``torch.Stream``,
``torch.autocast``, ``GradScaler``, ``nccl``, ``DataParallel``, ``DataLoader`` and the profilers mean npu afterwards,
in all threads started later. It warns once, and :func:`undo` takes everything back.

Limits: ``tensor.device.type`` is ``"npu"``, so a script that compares it with ``"cuda"`` takes its other branch;
devices written inside scripted functions are constants that nobody translates; each torch function costs about a
microsecond more on the host. Convert the script (``ms_fmk_transplt``) to be rid of all three.
"""

import functools
import os
import re
import sys
import threading
import warnings
from typing import Any

import torch.distributed
from torch.overrides import TorchFunctionMode

import torch
import torch.npu

from . import _api_table as api_table

_DEVICE = re.compile(r"cuda(:\d+)?")
_BACKENDS = re.compile(r"\bcuda:|\bnccl\b")
_undo_list: list[tuple[object, str, object]] = []
_mode: "_CudaToNpu | None" = None
_MISSING = object()


def _device(value):
    """A device (str, torch.device or anything else) with npu for cuda."""
    if type(value) is str and _DEVICE.fullmatch(value):
        return "npu" + value[4:]
    if type(value) is torch.device and value.type == "cuda":
        return torch.device("npu", value.index) if value.index is not None else torch.device("npu")
    return value


def _argument(value):
    """An argument of a torch function: a device, or a type name such as ``"torch.cuda.FloatTensor"``."""
    kind = type(value)
    if kind is str:
        if value.startswith("torch.cuda."):
            return "torch.npu." + value[11:]
        return "npu" + value[4:] if value.startswith("cuda") and _DEVICE.fullmatch(value) else value
    return _device(value) if kind is torch.device else value


class _CudaToNpu(TorchFunctionMode):
    """Translates the arguments of all torch functions, torch.device's own constructor included."""

    def __init__(self):
        super().__init__()
        self.enabled = True
        # Property getters make a new wrapper at each access, but equal ones hash alike.
        self._functions = {
            torch.Tensor.cuda: torch.Tensor.npu,
            torch.Tensor.is_cuda.__get__: torch.Tensor.is_npu.__get__,
        }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if not self.enabled:
            return func(*args, **(kwargs or {}))
        func = self._functions.get(func, func)
        for value in args:
            if type(value) in (str, torch.device):
                args = tuple(map(_argument, args))
                break
        if kwargs:
            kwargs = {key: _argument(value) for key, value in kwargs.items()}
            return func(*args, **kwargs)
        return func(*args)


def _patch(owner: object, name: str, new: object) -> None:
    _undo_list.append((owner, name, vars(owner).get(name, _MISSING)))
    setattr(owner, name, new)


def _resolve(name: str) -> object:
    """The object of a dotted name below torch; AttributeError where it is missing."""
    return functools.reduce(getattr, name.split(".")[1:], torch)


def _patch_names() -> None:
    """Put what the API table says in the place of each name of torch.cuda."""
    for row in api_table.NAMES.values():
        is_cuda = row.cuda.startswith(("torch.cuda.", "torch.backends.cuda.", "torch.backends.cudnn.is_available"))
        if not is_cuda or row.npu is None or row.is_module:
            continue
        home, _, leaf = row.cuda.rpartition(".")
        try:
            _patch(_resolve(home), leaf, _resolve(row.npu))
        except AttributeError:
            continue  # this build has it not (a later API, or HCCL)
    torch.npu._lazy_call(_take_generators)
    for home in ("memory", "random"):
        ours, theirs = getattr(torch.npu, home), getattr(torch.cuda, home)
        for name in set(dir(ours)) & set(dir(theirs)):
            if api_table.find(f"torch.cuda.{home}.{name}") is not None:
                _patch(theirs, name, getattr(ours, name))


def _take_generators() -> None:
    """There are none before the device layer is initialised."""
    if _undo_list:
        torch.cuda.default_generators = torch.npu.default_generators  # type: ignore[assignment]


def _wrap(owner: object, name: str, translate) -> None:
    """Put ``translate(args, kwargs) -> (args, kwargs)`` before a Python function or method."""
    original = vars(owner).get(name) or getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        args, kwargs = translate(args, dict(kwargs))
        return original(*args, **kwargs)

    _patch(owner, name, wrapper)


def _devices_in(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    return tuple(_device(value) for value in args), {key: _device(value) for key, value in kwargs.items()}


def _backends_in(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    def backend(value):
        if not isinstance(value, str):
            return value
        return _BACKENDS.sub(lambda match: {"cuda:": "npu:", "nccl": "hccl"}[match.group()], value)

    args, kwargs = _devices_in(args, kwargs)
    return tuple(map(backend, args)), {key: backend(value) for key, value in kwargs.items()}


def _load_arguments(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """torch.load: whatever was saved from or is wanted on cuda goes to npu."""
    at_second = len(args) > 1
    wanted = args[1] if at_second else kwargs.get("map_location")
    new: Any
    if wanted is None:

        def new(storage, location):
            moved = _device(location)
            return torch.serialization.default_restore_location(storage, moved) if moved != location else None

    elif isinstance(wanted, dict):
        new = {key: _device(value) for key, value in wanted.items()}
        new.update({_device(key): value for key, value in list(new.items()) if isinstance(key, str)})
    else:
        new = _device(wanted)
    if at_second:
        return (args[0], new, *args[2:]), kwargs
    return args, {**kwargs, "map_location": new}


def _device_class(name: str) -> type:
    """torch's class of that name with npu for cuda among its arguments; instances are, and count as, the plain ones."""
    plain = getattr(torch, name)

    class Meta(type(plain)):  # type: ignore[misc]
        def __instancecheck__(cls, instance):
            # Below the patched class, which stands for the plain one, there are the script's own.
            return isinstance(instance, plain) if cls is patched else type.__instancecheck__(cls, instance)

        def __subclasscheck__(cls, subclass):
            return issubclass(subclass, plain) if cls is patched else type.__subclasscheck__(cls, subclass)

    def new(cls, *args, **kwargs):
        args, kwargs = _devices_in(args, kwargs)
        return plain.__new__(plain if cls is patched else cls, *args, **kwargs)

    # Under the plain class's own name, by which pickle finds it.
    names = {"__new__": new, "__doc__": plain.__doc__, "__module__": "torch", "__qualname__": name}
    patched = Meta(name, (plain,), names)
    return patched


# Classes whose constructors take a device, and that no function mode sees.
_DEVICE_CLASSES = ("Event", "Generator", "Stream")


def _patch_data_parallel() -> None:
    """DataParallel drives many devices from one process, which npu does not do: it becomes its module on one device."""
    from torch.nn.parallel import DataParallel

    original = DataParallel.__init__

    @functools.wraps(original)
    def on_one_device(self, module, device_ids=None, output_device=None, dim=0):
        torch.nn.Module.__init__(self)
        self.dim, self.module, self.device_ids, self.output_device = dim, module, [], None
        module.npu()

    _patch(DataParallel, "__init__", on_one_device)


def _profiler_arguments(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Device times where the profiler has them for npu, host times alone where it does not."""
    kinds = torch.profiler.ProfilerActivity
    has_device = kinds.PrivateUse1 in torch.profiler.supported_activities()
    if kwargs.pop("use_cuda", False) or kwargs.get("use_device") == "cuda":
        kwargs["use_device"] = "npu" if has_device else None
    if kwargs.get("activities") is not None:
        activities = [kinds.PrivateUse1 if kind == kinds.CUDA else kind for kind in kwargs["activities"]]
        kwargs["activities"] = [kind for kind in activities if has_device or kind != kinds.PrivateUse1]
    return args, kwargs


def _default_tensor_type(original):
    @functools.wraps(original)
    def set_default_tensor_type(kind):
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        original("torch.npu." + name.rpartition(".")[2] if name.startswith("torch.cuda.") else kind)

    return set_default_tensor_type


def _patch_functions() -> None:
    import torch.autograd.profiler
    import torch.profiler

    _wrap(torch, "load", _load_arguments)
    _wrap(torch.serialization, "load", _load_arguments)
    _wrap(torch.amp.autocast, "__init__", _devices_in)
    grad_scaler = torch.amp.GradScaler

    def scaler_arguments(args, kwargs):
        if len(args) < 2:
            kwargs.setdefault("device", "npu")
        return _devices_in(args, kwargs)

    _wrap(grad_scaler, "__init__", scaler_arguments)
    for name in ("custom_fwd", "custom_bwd"):
        _wrap(torch.amp, name, _devices_in)
    _wrap(torch.utils.data.DataLoader, "__init__", _devices_in)
    _wrap(torch.autograd.profiler.profile, "__init__", _profiler_arguments)
    _wrap(torch.profiler.profile, "__init__", _profiler_arguments)

    def fork_arguments(args, kwargs):
        if len(args) < 5:
            kwargs.setdefault("device_type", "npu")
        return _devices_in(args, kwargs)

    _wrap(torch.random, "fork_rng", fork_arguments)
    for name in _DEVICE_CLASSES:
        _patch(torch, name, _device_class(name))
    _patch(torch, "set_default_tensor_type", _default_tensor_type(torch.set_default_tensor_type))
    _patch(torch.nn.Module, "cuda", torch.nn.Module.npu)  # type: ignore[attr-defined]
    _patch_data_parallel()


def _patch_distributed() -> None:
    if not torch.distributed.is_available():
        return
    import torch.distributed.distributed_c10d as c10d

    for name in ("init_process_group", "new_group"):
        _wrap(c10d, name, _backends_in)
        _patch(torch.distributed, name, getattr(c10d, name))
    available = getattr(torch.distributed, "is_hccl_available", None)
    if available is not None:
        _patch(torch.distributed, "is_nccl_available", available)
    group = getattr(torch.distributed, "ProcessGroupHCCL", None)
    if group is not None:
        for module in (torch.distributed, c10d):
            _patch(module, "ProcessGroupNCCL", group)


def _patch_threads() -> None:
    """Function modes belong to a thread: let every thread started from now on begin with ours."""
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(original)
    def bootstrap(self):
        mode = _mode
        if mode is None or not mode.enabled:
            return original(self)
        with mode:
            return original(self)

    _patch(threading.Thread, "_bootstrap_inner", bootstrap)


def apply() -> None:
    """Make CUDA mean npu in this process; importing the module does it. Does nothing if it is already so."""
    global _mode
    if _mode is not None:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not torch.npu.is_initialized():
        os.environ.setdefault("ASCEND_RT_VISIBLE_DEVICES", visible)
    try:
        _patch_names()
        _patch_functions()
        _patch_distributed()
        _patch_threads()
        if "torch._dynamo.trace_rules" in sys.modules:
            from ._dynamo import drop_cuda_names

            drop_cuda_names()
    except BaseException:
        _restore()
        raise
    _mode = _CudaToNpu()
    _mode.__enter__()
    warnings.warn(
        "torch.npu.transfer_to_npu: torch.cuda, device 'cuda' and back end 'nccl' mean npu and hccl in this process "
        "from here on; torch.npu.transfer_to_npu.undo() takes it back",
        stacklevel=2,
    )


def undo() -> None:
    """Take everything back that :func:`apply` did; tensors that are on npu stay there."""
    global _mode
    if _mode is None:
        return
    mode, _mode = _mode, None
    mode.enabled = False
    if torch.overrides._get_current_function_mode() is mode:
        mode.__exit__(None, None, None)
    _restore()


def _restore() -> None:
    while _undo_list:
        owner, name, old = _undo_list.pop()
        if old is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, old)


apply()
