# What is done with each operator: dumped, or fed from a file and dumped. The overflow check is in _overflow.py.
"""Dump and load."""

import contextlib
from typing import Any

import torch

from . import _calls, _values
from ._reader import ReadError
from ._replay import all_results, region_backward


def _twins(call, always: bool = False):
    """Name -> earlier name of arguments that are the very same tensor; it matters when the operator writes it, and for
    gradients.
    """
    if not call.op.writes and not always:
        return {}
    first: dict[int, str] = {}
    twins: dict[str, str] = {}
    for name, value in _calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)):
        if isinstance(value, torch.Tensor) and first.setdefault(id(value), name) != name:
            twins[name] = first[id(value)]
    return twins


class DumpSink:
    """Writes arguments, makes the call, writes results."""

    def __init__(self, writer, step: int = 1) -> None:
        self.writer, self.step = writer, step

    def attributes(self, call) -> dict:
        """Attributes of the call's group."""
        backward = torch._C._current_graph_task_id() != -1
        found = {
            "Index": call.index,
            "Step": self.step,
            "Overload": call.op.overload,
            "Phase": "backward" if backward else "forward",
        }
        if call.kind:
            found["Kind"] = call.kind
        if call.autocast:
            found["Autocast"] = call.autocast
        return found

    def run(self, call):
        """Records and makes one call."""
        where = self.writer.begin(call.name, call.seqid, self.attributes(call))
        self.write_inputs(where, call)
        try:
            result = call.execute(call.args, call.kwargs)
        except Exception as error:
            self.writer.mark(where, "Error", str(error)[:500])
            self.writer.end(where)
            raise
        self.write_results(where, call, result)
        return result

    def write_inputs(self, where, call, instead=None) -> None:
        """Writes the arguments; `instead` maps names to tensors whose values are written in their place."""
        twins, instead = _twins(call), instead or {}
        for name, value in _calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)):
            self.writer.value(where, "input", name, instead.get(name, value), same_as=twins.get(name), like=value)

    def write_results(self, where, call, result, args=None, kwargs=None) -> None:
        """Writes the results and ends the call."""
        args, kwargs = call.args if args is None else args, call.kwargs if kwargs is None else kwargs
        for name, value in _calls.flatten(all_results(call.op, result, args, kwargs)):
            nothing = call.kind == "uninitialised" or name in call.unspecified
            self.writer.value(where, "output", name, value, without_data=nothing)
        self.writer.end(where)

    def region_backward(self, call, name, seqid, index, entered, left) -> None:
        """Records the gradients of a region."""
        where = self._begin_backward(call, name, seqid, index)
        self._write_backward(where, call, entered, left.items())

    def _begin_backward(self, call, name, seqid, index):
        attributes = {
            "Index": index,
            "Step": self.step,
            "Overload": call.op.overload,
            "Phase": "backward",
            "Backward": 1,
        }
        if call.kind:
            attributes["Kind"] = call.kind
        if call.autocast:
            attributes["Autocast"] = call.autocast
        return self.writer.begin(name, seqid, attributes)

    def _write_backward(self, where, call, entered, left, inputs=None) -> None:
        for i, gradient in sorted(entered.items()):
            if gradient is not None:
                self.writer.value(where, "input", f"grad_{i}", gradient)
        twins = _twins(call, always=True)
        for name, value in _calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)):
            loaded = (inputs or {}).get(name, value)
            self.writer.value(where, "input", name, loaded, same_as=twins.get(name), like=value)
        for name, gradient in left:
            name = name if name.startswith("grad_") else f"grad_{name}"
            self.writer.value(where, "output", name, gradient)
        self.writer.end(where)


class LoadSink(DumpSink):
    """Takes each operator's inputs from a file, computes here, writes what came out.

    The program goes on with the results of the file's inputs. Views are the exception: the program keeps a view of its
    own tensor, since it may write through it; the file gets the view of the loaded one. A region (Note [Regions]) is
    computed twice, so that the program's graph stays its own.
    """

    def __init__(self, writer, reader, step: int = 1, around=None) -> None:
        super().__init__(writer, step)
        self.reader, self.around = reader, around
        self.problems: list[str] = []
        self.loaded = 0

    def _problem(self, path: str, text: str) -> None:
        self.problems.append(f"{path}: {text}")

    def _find(self, call, path: str, values):
        """name -> loaded tensor on the argument's device, or None if the call cannot be fed from the file."""
        try:
            return self._read(call, path, values)
        except (ReadError, ValueError) as error:
            self._problem(path, str(error))
            return None

    def _read(self, call, path: str, values):
        recorded = self.reader.call(path)
        if recorded is None:
            if call.name not in _calls.ACROSS_DEVICES:  # a script moves its data on one device only
                self._problem(path, f"not in {self.reader.path}")
            return None
        names, found = set(recorded.names()), {}
        for name, value in values:
            if not isinstance(value, torch.Tensor) or not _values.storable(value) or name in call.unspecified:
                continue
            header = recorded.header(name) if name in names else None
            if header is None:
                self._problem(path, f"input {name} is not in {self.reader.path}")
                return None
            shape, dtype = header
            here = tuple(value.shape), _values.dtype_name(value.dtype)
            if (tuple(shape), dtype) != here:
                self._problem(path, f"input {name} is {dtype}{list(shape)} in the file, {here[1]}{list(here[0])} here")
                return None
            found[name] = recorded.value(name, device=value.device)
        return found

    def run(self, call):
        """Makes one call with the file's inputs."""
        named = _calls.named_arguments(call.op, call.args, call.kwargs)
        loaded = self._find(call, call.path, _calls.flatten(named))
        if loaded is None:
            return super().run(call)
        self.loaded += 1
        where = self.writer.begin(call.name, call.seqid, {**self.attributes(call), "Loaded": 1})
        self.write_inputs(where, call, loaded)
        if call.is_region:
            return self._run_region(where, call, loaded)
        args, kwargs = self._fed(call, loaded)
        try:
            with self._acl(call.path):
                result = call.execute(args, kwargs)
        except RuntimeError as error:
            if not call.op.is_view:
                raise
            self._problem(call.path, f"a view that the loaded tensor does not allow: {error}")
            result = call.execute(call.args, call.kwargs)
            self.write_results(where, call, result)
            return result
        self.write_results(where, call, result, args, kwargs)
        return call.execute(call.args, call.kwargs) if call.op.is_view else result

    def _fed(self, call, loaded):
        """(args, kwargs) with the loaded tensors; one that the operator writes stays the program's and takes
        the values.
        """
        originals = dict(_calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)))
        twins, chosen = _twins(call), {}
        for name, tensor in loaded.items():
            if name in twins:
                chosen[name] = chosen[twins[name]]
            elif _calls.is_written(call.op, name):
                chosen[name] = originals[name].copy_(tensor)
            else:
                chosen[name] = tensor
        return self._with(call, chosen)

    def _acl(self, path):
        return self.around(path) if self.around is not None else contextlib.nullcontext()

    def _run_region(self, where, call, loaded):
        leaves = {}
        for name, value in _calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)):
            if name in loaded:
                leaf = loaded[name].detach()
                leaves[name] = leaf.requires_grad_(value.requires_grad and torch.is_grad_enabled())
        args, kwargs = self._with(call, leaves)
        if call.op.writes:
            args = tuple(_calls.map_tensors(torch.clone, a) for a in args)
        with self._acl(call.path), torch.no_grad():
            result = call.execute(args, kwargs)
        self.write_results(where, call, result, args, kwargs)
        call.extra["loaded"] = {name: leaf.detach() for name, leaf in loaded.items()} if call.kind != "random" else {}
        return call.execute(call.args, call.kwargs)

    def _with(self, call, tensors):
        def one(name, value):
            if isinstance(value, torch.Tensor):
                return tensors.get(name, value)
            if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
                return type(value)(tensors.get(f"{name}_{i}", item) for i, item in enumerate(value))
            return value

        named = _calls.named_arguments(call.op, call.args, call.kwargs)
        args = tuple(one(name, value) for name, value in named[: len(call.args)])
        return args, {name: one(name, value) for name, value in named[len(call.args) :]}

    def region_backward(self, call, name, seqid, index, entered, left) -> None:
        """Computes a region's backward from the file's gradients and inputs, and records it."""
        path = f"/{name}/{seqid}"
        entering = [(f"grad_{i}", g) for i, g in entered.items() if g is not None]
        loaded = self._find(call, path, entering)
        if loaded is None or call.kind == "random" or "loaded" not in call.extra:
            if loaded is not None:
                entered = {int(key[5:]): value for key, value in loaded.items()}
            where = self._begin_backward(call, name, seqid, index)
            self._write_backward(where, call, entered, left.items())
            return
        self.loaded += 1
        entered = {int(key[5:]): value for key, value in loaded.items()}
        values = call.extra["loaded"]
        leaves: dict[str, Any] = {}
        names, twins = [], _twins(call, always=True)
        for item, original in _calls.flatten(_calls.named_arguments(call.op, call.args, call.kwargs)):
            if item in twins:
                leaves[item] = leaves[twins[item]]
            elif isinstance(original, torch.Tensor):
                leaf = values.get(item, original).detach()
                leaves[item] = leaf.requires_grad_(original.requires_grad)
                if original.requires_grad and item in left:
                    names.append(item)
        args, kwargs = self._with(call, leaves)
        with self._acl(path), torch.enable_grad():
            found = region_backward(call.func, args, kwargs, entered, names, call.autocast)
        where = self._begin_backward(call, name, seqid, index)
        self._write_backward(where, call, entered, found, values)
