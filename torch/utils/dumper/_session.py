# Where operators are caught: the mode, the numbers (seqid, Index), threads, and functions recorded as one operator.
"""The recording session of one `with torch.utils.dumper(...)` block."""

import functools
import os
import sys
import threading
import types
from dataclasses import dataclass, field

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import torch

from . import _calls, _regions


@dataclass
class Invocation:
    """One call that is being made. `execute(args, kwargs)` makes it."""

    op: _calls.Operator
    name: str
    seqid: int
    index: int
    func: object
    args: tuple
    kwargs: dict
    execute: object
    kind: str = ""
    is_region: bool = False
    autocast: str = ""  # of a region: see _regions.autocast_of
    extra: dict = field(default_factory=dict)  # what a sink keeps of a region until its backward

    @property
    def path(self) -> str:
        """/op/seqid."""
        return f"/{self.name}/{self.seqid}"

    @property
    def unspecified(self) -> tuple[str, ...]:
        """See _calls.unspecified."""
        return _calls.unspecified(self.op, self.args, self.kwargs)


class _Local(threading.local):
    depth = 0  # above 0 the thread is inside of work that is not recorded


class Session:
    """Hands each operator to the sink: `sink.run(invocation)` returns the result, `sink.region_backward(...)` is told
    of a region's gradients.

    Args:
        sink: what is done with the operators.
        regions: whether Note [Regions] applies.
        accept: function of the recorded name; operators that it refuses are counted but not handed on.
    """

    def __init__(self, sink, *, regions: bool = True, accept=None, sequence=None, index: int = 0) -> None:
        self.sink, self.regions, self.accept = sink, regions, accept or (lambda _: True)
        self.sequence: dict[str, int] = dict(sequence or {})
        self.index = index
        self.open = False
        self._lock = threading.Lock()
        self._local = _Local()
        self._owner = os.getpid()

    # -- entering and leaving

    def start(self) -> None:
        """Records this thread, and threads that it starts."""
        self.open = True
        self._start_thread = threading.Thread.start
        session, start = self, self._start_thread

        def start_recorded(thread):
            if session.open and session.here():
                run = thread.run

                def run_recorded():
                    with _Dispatch(session):
                        run()

                thread.run = run_recorded
            return start(thread)

        self._patched = threading.Thread.start = start_recorded  # type: ignore[method-assign]
        self._functions = _Functions(self)
        if self.regions:
            self._functions.put()
        self._mode = _Dispatch(self)
        self._mode.__enter__()

    def stop(self) -> None:
        """Ends the recording in all threads."""
        self.open = False
        if threading.Thread.start is self._patched:
            threading.Thread.start = self._start_thread  # type: ignore[method-assign]
        self._functions.remove()
        # A mode can only be left by its thread; where another one ends the block it stays, and records nothing.
        if any(mode is self._mode for mode in _get_current_dispatch_mode_stack()):
            self._mode.__exit__(None, None, None)

    def here(self) -> bool:
        """Whether this thread is recorded."""
        return any(isinstance(mode, _Dispatch) and mode.session is self for mode in _get_current_dispatch_mode_stack())

    # -- numbers

    def number(self, name: str) -> tuple[int, int]:
        """(seqid of this call among those of the same name from 1, number among all calls from 1)."""
        with self._lock:
            self.index += 1
            seqid = self.sequence[name] = self.sequence.get(name, 0) + 1
            return seqid, self.index

    # -- operators

    def quiet(self) -> bool:
        """Whether operators of this thread are passed on unrecorded just now."""
        return not self.open or self._local.depth > 0 or os.getpid() != self._owner

    def unrecorded(self) -> "_Unrecorded":
        """Context manager: operators of this thread are not recorded inside of it."""
        return _Unrecorded(self._local)

    def dispatch(self, func, args, kwargs):
        """An aten operator."""
        if self.quiet():
            return func(*args, **kwargs)
        op = _calls.describe(func)
        if not op.recorded or _regions.belongs_to_autograd(self, op):
            return func(*args, **kwargs)
        name = _calls.device_name(op, args, kwargs)
        seqid, index = self.number(name)
        if not self.accept(name):
            return func(*args, **kwargs)
        args, kwargs = _calls.self_contained(func, args, kwargs)
        execute = lambda a, k: func(*a, **k)  # noqa: E731
        return self.sink.run(Invocation(op, name, seqid, index, func, args, kwargs, execute, op.kind))

    def region(self, function, args, kwargs):
        """A function that is recorded as one operator."""
        func = _calls.resolve(_regions.overload(function.__name__, args))
        op = _calls.describe(func)
        seqid, index = self.number(op.name)
        edges = _regions.input_edges(op, args, kwargs)

        def execute(a, k):
            return function(*a, **k)

        kind = "random" if _regions.is_random(op, args, kwargs) else ""
        autocast = _regions.autocast_of(args, kwargs)
        call = Invocation(op, op.name, seqid, index, func, args, kwargs, execute, kind, True, autocast)
        with self.unrecorded():
            result = self.sink.run(call) if self.accept(op.name) else execute(args, kwargs)
            _regions.canonical(result, args)
        if torch.is_grad_enabled():
            _regions.watch(self, call, edges, result)
        return result


class _Unrecorded:
    def __init__(self, local: _Local) -> None:
        self._local = local

    def __enter__(self) -> None:
        self._local.depth += 1

    def __exit__(self, *_) -> None:
        self._local.depth -= 1


class _Dispatch(TorchDispatchMode):
    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.session.dispatch(func, args, kwargs or {})


class _Functions:
    """Puts recording stand-ins in the place of the functions of Note [Regions], also where modules have imported them
    by name.

    A TorchFunctionMode would not do: functions of Python hand themselves to the mode, and what they call is not seen
    then.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._old: list = []

    def put(self) -> None:
        """Replaces the functions."""
        places = [(owner, name) for owner in (torch._VF, torch) for name in _calls.REGIONS if hasattr(owner, name)]
        name = "scaled_dot_product_attention"
        places += [(torch.nn.functional, name), (torch._C._nn, name)]
        made: dict[int, tuple] = {}  # id of a function -> the function and its stand-in
        for owner, name in places:
            old = getattr(owner, name)
            self._put(owner, name, *made.setdefault(id(old), (old, self._stand_in(old))))
        for module in list(sys.modules.values()):
            if type(module) is types.ModuleType:
                for name, value in list(vars(module).items()):
                    if id(value) in made:
                        self._put(module, name, *made[id(value)])

    def _put(self, owner, name, old, own) -> None:
        self._old.append((owner, name, old, own))
        setattr(owner, name, own)

    def remove(self) -> None:
        """Puts the functions back."""
        for owner, name, old, own in self._old:
            if getattr(owner, name, None) is own:
                setattr(owner, name, old)

    def _stand_in(self, old):
        session = self._session

        @functools.wraps(old)
        def recorded(*args, **kwargs):
            # Tensors of torch.func's transforms have no values; what they are made of has, and is recorded.
            if session.quiet() or not session.here() or torch._C._functorch.peek_interpreter_stack() is not None:
                return old(*args, **kwargs)
            return session.region(old, args, kwargs)

        return recorded
