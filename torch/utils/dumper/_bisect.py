# Finds the first operator that computes differently on another device, from the same inputs, and writes a test of it.
"""`python -m torch.utils.dumper bisect`."""

import contextlib
import inspect
import os
import random
import re
import runpy
import sys
import tempfile
import threading
import tokenize
import traceback
import types
from dataclasses import dataclass
from typing import Any

from torch.overrides import TorchFunctionMode

import torch

from . import _calls, _regions, _tools
from ._context import dumper
from ._reader import Reader, ReadError
from ._replay import all_results, region_backward
from ._session import Session
from ._sinks import _twins
from ._unittest_writer import write_unittest
from ._writer import DumpError, Writer, import_h5py

OK, DIFFERS, REFUSED = 0, 1, 2
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_HERE = os.path.dirname(os.path.realpath(__file__)) + os.sep


class _Refused(Exception):
    """Nothing can be compared; the text says why and what to do."""


class _Stop(BaseException):
    """Ends the script or its thread: the steps are done, or the operator is found. No `except Exception` keeps it."""


@dataclass
class Finding:
    """The first operator out of tolerance."""

    path: str
    overload: str
    phase: str
    module: str
    source: str
    result: str
    text: str
    call: Any
    values: dict
    truth: dict


class _OnDevice(TorchFunctionMode):
    """Wherever the script names an accelerator, the device of this run is meant."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def _map(self, value):
        if isinstance(value, torch.device) and value.type in ("npu", "cuda"):
            return self.device
        if isinstance(value, str) and re.fullmatch(r"(npu|cuda)(:\d+)?", value):
            return self.device
        return value

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.device:  # of a type and a number, for instance
            return self._map(func(*args, **kwargs))
        if getattr(func, "__name__", "") in ("npu", "cuda", "wrap_tensor_to") and isinstance(args[0], torch.Tensor):
            return args[0].to(self.device)
        return func(*(self._map(a) for a in args), **{k: self._map(v) for k, v in kwargs.items()})


@contextlib.contextmanager
def _threads_inside(modes):
    """Threads that the script starts run inside of `modes()` as well: a mode is its thread's own."""
    start = threading.Thread.start

    def start_inside(thread):
        run = thread.run

        def run_inside():
            with contextlib.suppress(_Stop), modes():
                run()

        thread.run = run_inside
        return start(thread)

    threading.Thread.start = start_inside
    try:
        yield
    finally:
        if threading.Thread.start is start_inside:
            threading.Thread.start = start


class _Places:
    """Which module and source line an operator belongs to; for backward operators those of the forward."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._names: dict = {}
        self._nodes: dict[int, tuple[str, str]] = {}
        module = torch.nn.modules.module
        self._handles = [
            module.register_module_forward_pre_hook(self._enter),
            module.register_module_forward_hook(self._leave, always_call=True),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _stack(self) -> list:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        return self._local.stack

    def _enter(self, module, _args) -> None:
        stack = self._stack()
        if not stack:
            self._names.update({id(m): name for name, m in module.named_modules()})
        stack.append(f"{self._names.get(id(module)) or '(root)'} ({type(module).__name__})")

    def _leave(self, module, _args, _result) -> None:
        if self._stack():
            self._stack().pop()

    def forward(self) -> tuple[str, str]:
        """(module, source line) of the operator that this thread runs; remembered for the node just made.

        An operator that makes no node finds the number of the last one, which has its place already.
        """
        stack = self._stack()
        place = stack[-1] if stack else "(no module)", _source_line()
        self._nodes.setdefault(torch.autograd._get_sequence_nr() - 1, place)
        return place

    def backward(self) -> tuple[str, str]:
        """The same for the forward operator of the node that autograd runs."""
        node = torch._C._current_autograd_node()
        return self._nodes.get(node._sequence_nr() if node is not None else -1, ("(no module)", "(unknown)"))


def _source_line() -> str:
    """file:line of the innermost frame outside of torch."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not os.path.abspath(name).startswith((_TORCH, _HERE)) and not name.startswith("<"):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "(unknown)"


class BisectSink:
    """Computes each operator of the checked device on the trusted one as well, from the same inputs."""

    def __init__(self, trusted: str, checked: str, rtol, atol) -> None:
        self.trusted, self.checked = trusted, torch.device(checked).type
        self._limits = {"rtol": rtol, "atol": atol}
        self.places = _Places()
        self.compared = 0
        self.unchecked: dict[str, str] = {}
        self.finding: Finding | None = None

    def _concerned(self, call) -> bool:
        values = _calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs))
        return any(isinstance(v, torch.Tensor) and v.device.type == self.checked for _, v in values)

    def _there(self, values):
        """Arguments on the trusted device: copies, since the operator may write them."""
        made: dict[int, torch.Tensor] = {}

        def one(tensor):
            if id(tensor) not in made:
                made[id(tensor)] = _copy(tensor, self.trusted)
            return made[id(tensor)]

        def device(value):
            return torch.device(self.trusted) if isinstance(value, torch.device) else value

        return [_calls.map_tensors(one, device(value)) for value in values]

    def run(self, call):
        """Makes the call on both devices and compares."""
        if self.finding is not None:  # found in another thread, or the script has caught _Stop
            raise _Stop
        backward = torch._C._current_graph_task_id() != -1
        place = self.places.backward() if backward else self.places.forward()
        if call.is_region:
            call.extra["place"] = place
        if call.kind in ("random", "uninitialised") or not self._concerned(call):
            return call.execute(call.args, call.kwargs)
        with torch.no_grad(), _regions.autocast(call.autocast, self.trusted):
            args = self._there(call.args)
            kwargs = dict(zip(call.kwargs, self._there(call.kwargs.values()), strict=True))
            before = dict(_calls.flatten(_calls.named_arguments(call.op, args, kwargs)))
            before = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in before.items()}
            try:
                truth = dict(_calls.flatten(all_results(call.op, call.func(*args, **kwargs), args, kwargs)))
            except (NotImplementedError, RuntimeError) as error:
                self.unchecked.setdefault(call.name, str(error).splitlines()[0][:100])
                truth = None
        result = call.execute(call.args, call.kwargs)
        if truth is not None:
            found = dict(_calls.flatten(all_results(call.op, result, call.args, call.kwargs)))
            self._compare(call, call.path, "backward" if backward else "forward", place, found, truth, before)
        return result

    def region_backward(self, call, name, seqid, index, entered, left) -> None:
        """Compares the gradients of a region."""
        if call.kind == "random" or not self._concerned(call) or self.finding is not None:
            return
        named = dict(_calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)))
        args = self._there(call.args)
        kwargs = dict(zip(call.kwargs, self._there(call.kwargs.values()), strict=True))
        there = dict(_calls.flatten(_calls.named_arguments(call.op, args, kwargs)))
        names = [n for n, v in named.items() if isinstance(v, torch.Tensor) and v.requires_grad]
        before = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in there.items()}
        for item in names:
            there[item].requires_grad_(True)
        grads = {i: g.detach().to(self.trusted) for i, g in entered.items() if g is not None}
        before.update({f"grad_{i}": g for i, g in grads.items()})
        truth = dict(region_backward(call.func, args, kwargs, grads, names, call.autocast))
        found = {f"grad_{n}": g for n, g in left.items()}
        self._compare(call, f"/{name}/{seqid}", "backward", call.extra["place"], found, truth, before)

    def _compare(self, call, path, phase, place, found, truth, before) -> None:
        self.compared += 1
        worst = None
        for name, value in found.items():
            other = truth.get(name)
            if name in call.unspecified:
                continue
            if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
                outcome = _tools.compare(value, other, **self._limits, autocast=call.autocast)
                if not outcome.passed and worst is None:
                    worst = (name, outcome)
        if worst is None:
            return
        name, outcome = worst
        module, source = place
        measured = (
            f"relative Euclidean distance {outcome['RelativeEuclideanDistance']:.3g}, "
            f"largest error {outcome['MaxAbsoluteError']:.3g}. {outcome.reason}"
        )
        self.finding = Finding(path, call.op.overload, phase, module, source, name, measured, call, before, truth)
        raise _Stop


def _copy(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy in the same strides where they are dense."""
    return torch.empty_like(tensor, device=device).copy_(tensor.detach())


class _Steps:
    """Stops the script before its N-th optimizer step."""

    def __init__(self, count: int) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._left = count
        self._handle = register_optimizer_step_pre_hook(self._step)

    def _step(self, *_) -> None:
        self._left -= 1
        if self._left <= 0:
            raise _Stop

    def remove(self) -> None:
        self._handle.remove()


def _script_text(script: str) -> str:
    """The script's source, in the encoding that it declares; _Refused when it is no Python."""
    try:
        with tokenize.open(script) as file:
            text = file.read()
        compile(text, script, "exec", dont_inherit=True)
    except OSError as error:
        raise _Refused(f"{script}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _Refused(
            f"{script}: cannot be decoded: {error.reason}; declare the encoding in its first line"
        ) from error
    except SyntaxError as error:
        place = f"{script}:{error.lineno}" if error.lineno else script
        raise _Refused(f"{place}: {error.msg}") from error
    except ValueError as error:
        raise _Refused(f"{script}: {error}") from error
    return text


def _call_step(script: str, device: str) -> None:
    """Calls `step(device)` of the script."""
    step: Any = runpy.run_path(script, run_name="__bisect__").get("step")
    try:
        inspect.signature(step).bind(device)
    except TypeError as error:
        raise _Refused(f"{script}: step must take the device, step(device): {error}") from error
    step(device)


def _print_traceback(script: str, error: BaseException) -> None:
    """The error as Python prints it, from the script on."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != script:
        frame = frame.tb_next
    traceback.print_exception(type(error), error, frame)


def _run_script(options, device: str) -> None:
    """Runs the script on a device, up to its last step; its SystemExit is its end. _Refused when it fails."""
    text = _script_text(options.script)
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(options.seed)
    old = sys.argv, os.environ.get("DUMPER_DEVICE"), sys.path[0]
    sys.argv = [options.script, *(a.replace("{device}", device) for a in options.arguments)]
    os.environ["DUMPER_DEVICE"] = device
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    has_step = re.search(r"^def step\(", text, re.MULTILINE)
    # A script that never speaks of a device is moved there as a whole.
    silent = not has_step and not re.search(r"\b(npu|cuda|DUMPER_DEVICE)\b", " ".join([text, *options.arguments]))
    silent = silent and "{device}" not in " ".join(options.arguments)
    steps = _Steps(options.steps)

    def modes():
        entered = contextlib.ExitStack()
        if silent:
            entered.enter_context(torch.device(device))
        entered.enter_context(_OnDevice(device))
        return entered

    try:
        with modes(), _threads_inside(modes):
            if has_step:
                _call_step(options.script, device)
            else:
                runpy.run_path(options.script, run_name="__main__")
    except _Stop:
        return
    except SystemExit as error:
        if error.code not in (None, 0):
            raise _Refused(f"{options.script} ended with {error.code!r} on {device}") from error
    except _Refused:
        raise
    except Exception as error:
        _print_traceback(options.script, error)
        raise _Refused(f"{options.script} failed on {device}: {type(error).__name__}: {error}") from error
    finally:
        steps.remove()
        sys.argv, sys.path[0] = old[0], old[2]
        if old[1] is None:
            del os.environ["DUMPER_DEVICE"]
        else:
            os.environ["DUMPER_DEVICE"] = old[1]


def _inputs_off(finding: Finding, reference: str, limits) -> str:
    """What the run on the trusted device had for the same inputs."""
    with Reader(reference) as reader:
        recorded = reader.call(finding.path)
        if recorded is None:
            return "unknown: the run on the trusted device has no such call"
        off = []
        for name, value in finding.values.items():
            header = recorded.header(name)
            if isinstance(value, torch.Tensor) and header is not None and tuple(header[0]) == tuple(value.shape):
                outcome = _tools.compare(value, recorded.value(name), **limits)
                if not outcome.passed:
                    off.append(f"{name} (relative Euclidean distance {outcome['RelativeEuclideanDistance']:.3g})")
    return f"yes: {', '.join(off)}" if off else "no"


def _write_call(finding: Finding, folder: str) -> str:
    """A dump file of the one call with the inputs it had and the results of the trusted device."""
    call, path = finding.call, os.path.join(folder, "operator.h5")
    name, seqid = finding.path.strip("/").split("/")
    backward = name != call.name
    writer = Writer(path, append=False, summary_only=False, progress=False, attributes={})
    attributes = {"Index": 1, "Overload": call.op.overload, **({"Backward": 1} if backward else {})}
    if call.autocast:
        attributes["Autocast"] = call.autocast
    where = writer.begin(name, int(seqid), attributes)
    originals = dict(_calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)))
    twins = {} if backward else _twins(call)
    for item, value in finding.values.items():
        like = originals.get(item) if isinstance(originals.get(item), torch.Tensor) else None
        writer.value(where, "input", item, value, same_as=twins.get(item), like=like)
    for item, value in finding.truth.items():
        writer.value(where, "output", item, value)
    writer.close()
    return path


def _devices(text: str) -> list[str]:
    """The two devices; _Refused unless both are there."""
    devices = [d.strip() for d in text.split(",")]
    if len(devices) != 2 or devices[0] == devices[1]:
        raise _Refused(f"--devices {text}: two devices, for example cpu,npu")
    for device in devices:
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise _Refused(f"--devices {text}: {device!r}: {str(error).splitlines()[0]}") from error
    return devices


def main(options) -> int:
    """Runs the command; returns the exit status."""
    try:
        if not os.path.isfile(options.script):
            raise _Refused(f"{options.script}: no such file")
        import_h5py()
        _script_text(options.script)
        trusted, checked = _devices(options.devices)
        try:
            os.makedirs(options.out, exist_ok=True)
        except OSError as error:
            raise _Refused(f"--out {options.out}: {error.strerror}") from error
        return _bisect(options, trusted, checked)
    except (_Refused, DumpError) as error:
        print(f"bisect: {error}", file=sys.stderr)
        return REFUSED


def _bisect(options, trusted: str, checked: str) -> int:
    limits = {"rtol": options.rtol, "atol": options.atol}
    with tempfile.TemporaryDirectory(prefix="bisect_") as folder:
        reference = os.path.join(folder, "reference.h5")
        with dumper(use_dump=True, dump_path=reference, progress=False):
            _run_script(options, trusted)
        sink = BisectSink(trusted, checked, options.rtol, options.atol)
        session = Session(sink)
        session.start()
        try:
            _run_script(options, checked)
        finally:
            session.stop()
            sink.places.remove()
        for name, error in sink.unchecked.items():
            print(f"not checked: {name} does not run on {trusted}: {error}")
        finding = sink.finding
        if finding is None:
            if not sink.compared:
                print(
                    f"bisect: no operator of {options.script} ran on {checked}; "
                    "--help says how a script gets its device",
                    file=sys.stderr,
                )
                return REFUSED
            print(f"{sink.compared} operators of {checked} compared with {trusted}: all within tolerance")
            return OK
        print(f"first operator out of tolerance: {finding.path} ({finding.overload}, {finding.phase})")
        print(f"  result {finding.result}: {finding.text}")
        print(f"  module: {finding.module}")
        print(f"  source: {finding.source}")
        try:
            off = _inputs_off(finding, reference, limits)
        except (ReadError, ValueError) as error:
            off = f"unknown: {error}"
        print(f"  inputs already off: {off}")
        print(f"  {sink.compared - 1} operators before it agree")
        try:
            test = write_unittest(_write_call(finding, folder), finding.path, options.out, (trusted, checked))
        except (RuntimeError, ValueError, LookupError, OSError) as error:
            test = f"none: {error}"
        print(f"  test: {test}")
    return DIFFERS
