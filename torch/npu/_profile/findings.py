r"""What is wrong with a profile: each finding says what, how much it costs, where, and what to do.

Thresholds are chosen so that a script without the problem gets no finding: shares of the whole, and least counts.
"""

import os
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

from . import tables
from .events import Frames, HostOp, Profile, Task, frame

LAYOUT_OPS = ("AsStrided", "ViewCopy", "Transpose", "TransposeD", "TransData", "StridedSlice", "TensorMove", "Slice")
CONVERSIONS = ("Cast", "TransData", "Transpose")
SYNC_OPS = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero", "aten::masked_select", "aten::equal")
SMALL = 1 << 20  # bytes that a small operator reads and writes at most
_TORCH = os.sep + "torch" + os.sep
_BACKWARD = "autograd::engine::evaluate_function"


@dataclass
class Finding:
    r"""``kind`` is a fixed word, ``cost`` microseconds of the whole profile."""

    kind: str
    title: str
    cost: float
    advice: str
    where: str = ""
    details: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Context:
    r"""A profile with what several searches need."""

    def __init__(self, profile: Profile):
        self.profile = profile
        self.steps = profile.steps
        self.frames = Frames(profile.functions)
        begin, end = (self.steps[0].start, self.steps[-1].end) if self.steps else profile.span
        self.begin, self.end = begin, end
        self.span = max(end - begin, 1e-9)
        work = [task for task in profile.tasks if task.kind != "wait"]
        self.busy_stretches = tables.merged(work)
        self.busy = tables.length(self.busy_stretches)
        self.device_time = sum(task.duration for task in work)
        self.calls_of: dict[int, HostOp | None] = {call.task: call.op for call in profile.calls if call.task}
        self.forward_of = forward_operators(profile.ops)

    def step_number(self, at: float) -> int:
        r"""Which step a time lies in, from 0; -1 for none."""
        for number, step in enumerate(self.steps):
            if step.start <= at < step.end:
                return number
        return -1

    def where(self, op: HostOp | None) -> str:
        r"""File, line and function of the user's code that called an operator, "" if it is not known. Of one in a
        backward pass it is the line of the forward pass, if that was recorded."""
        if op is None:
            return ""
        for held in op.ancestors():
            if held.name.startswith(_BACKWARD):
                forward = self.forward_of.get(held.sequence)
                return self.where(forward) or held.called_at
            if held.called_at and (held is op or held.kind == "op"):
                return held.called_at
        # A trace without lines: where the function begins.
        outermost = op.ancestors()[-1]
        for function in self.frames.at(op.thread, op.start) or self.frames.at(outermost.thread, outermost.start):
            place = frame(function.name)
            if place and not is_library(place[0]):
                return f"{place[0]}:{place[1]} {place[2]}"
        return ""

    def caller(self, op: HostOp) -> tuple[str, int, str] | None:
        r"""The innermost Python function of any code that called an operator."""
        for function in self.frames.at(op.thread, op.start):
            if place := frame(function.name):
                return place
        return None


def forward_operators(ops: list[HostOp]) -> dict[int, HostOp]:
    r"""By sequence number the operator whose gradient a backward pass computes under that number: the last one before
    the number was used up. Numbers of several threads are each thread's own, so what two of them have is left out."""
    found: dict[int, HostOp] = {}
    several = set()
    for op in ops:
        if op.sequence < 0 or op.kind != "op" or any(held.name.startswith(_BACKWARD) for held in op.ancestors()):
            continue
        if op.sequence in found and found[op.sequence].thread != op.thread:
            several.add(op.sequence)
        found[op.sequence] = op
    return {number: op for number, op in found.items() if number not in several}


def is_library(file: str) -> bool:
    r"""Whether a file of a Python frame is torch's or the interpreter's, not the user's."""
    return _TORCH in file or file.startswith(("torch/", "<")) or "site-packages" in file or "/lib/python3" in file


def find_all(profile: Profile) -> list[Finding]:
    r"""All findings, the dearest first."""
    context = Context(profile)
    found: list[Finding] = []
    for search in (
        hidden_syncs, conversions, layout_copies, new_shapes, small_ops, loader_stalls, copies, ai_cpu, failures, memory
    ):  # fmt: skip
        found += search(context)
    return sorted(found, key=lambda finding: -finding.cost)


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def hidden_syncs(context: Context) -> list[Finding]:
    r"""Operators that make the host wait for a device, such as .item() or `if tensor:`, in more than the last step."""
    groups: dict[tuple[str, str], list[HostOp]] = defaultdict(list)
    for op in context.profile.ops:
        if op.name not in SYNC_OPS or not _touches_device(context, op):
            continue
        named = next((held for held in op.ancestors() if held.name in ("aten::item", "aten::is_nonzero")), op)
        groups[(named.name, context.where(op))].append(op)
    steps = max(1, len(context.steps))
    found = []
    for (name, where), ops in groups.items():
        cost = sum(op.duration for op in ops)
        # Reading one number at the end of it all, such as the last loss, is what everybody does.
        if len(ops) < 2 or len(ops) < steps or cost < 0.005 * context.span:
            continue
        found.append(
            Finding(
                "hidden synchronisation",
                f"{name} makes the host wait for the device {len(ops)} times, {cost / 1000:.2f} ms in all",
                cost,
                "Keep the value on the device (torch.where instead of if, tensors instead of numbers), or read it "
                "every so many steps only.",
                where,
            )
        )
    return found


def _touches_device(context: Context, op: HostOp) -> bool:
    held = [op]
    while held:
        at = held.pop()
        if at.tasks:
            return True
        held += at.children
    return any(call.name.startswith("aclrtSynchronize") for call in _calls_in(context, op))


def _calls_in(context: Context, op: HostOp) -> list:
    from bisect import bisect_left

    calls = context.profile.calls
    found = []
    for call in calls[bisect_left(calls, op.start, key=lambda call: call.start) :]:
        if call.start > op.end:
            break
        if call.thread == op.thread:
            found.append(call)
    return found


def conversions(context: Context) -> list[Finding]:
    r"""A conversion that the next one of the same stream undoes."""
    last: dict[tuple[int, int], Task] = {}
    pairs: dict[tuple[str, str, str, str], list[Task]] = defaultdict(list)
    for task in context.profile.tasks:
        if task.kind != "op":
            continue
        place = (task.device, task.stream)
        before, last[place] = last.get(place), task
        if before is None or task.name not in CONVERSIONS or before.name != task.name:
            continue
        if _undoes(before, task):
            key = (task.name, task.outputs[0] or task.inputs[0], _form(before), context.where(task.op))
            pairs[key].append(task)
            pairs[key].append(before)
            last.pop(place)
    found = []
    for (name, shape, form, where), tasks in pairs.items():
        cost = sum(task.duration for task in tasks)
        if len(tasks) < 4:
            continue
        found.append(
            Finding(
                "redundant conversion",
                f"{name} there and back {len(tasks) // 2} times on [{shape}] ({form})",
                cost,
                "Both can go if nothing else needs what lies between: keep the tensor in one dtype and format.",
                where,
            )
        )
    return found


def _form(task: Task) -> str:
    first, second = (side[1].split(";")[0] + " " + side[2].split(";")[0] for side in (task.inputs, task.outputs))
    return f"{first} to {second}" if first != second else f"[{task.inputs[0].split(';')[0]}] to [{task.outputs[0]}]"


def _undoes(first: Task, second: Task) -> bool:
    def operand(side: tuple[str, str, str]) -> tuple[str, ...]:
        return tuple(part.split(";")[0] for part in side)

    before, between = operand(first.inputs), operand(first.outputs)
    return operand(second.inputs) == between and operand(second.outputs) == before and before != between


def layout_copies(context: Context) -> list[Finding]:
    r"""Time that goes into making views contiguous: if a tenth of the device's, each line's that is not little."""
    # What one line causes belongs together, forwards and backwards; operators of unknown lines are kept apart by name.
    groups: dict[tuple[str, str], list[tuple[Task, str]]] = defaultdict(list)
    for task in context.profile.tasks:
        if task.kind == "op" and task.name in LAYOUT_OPS and task.op is not None:
            inside = [held for held in task.op.ancestors() if held.kind == "op"]
            name, where = inside[-1].name if inside else task.op.name, context.where(task.op)
            groups[("" if where else name, where)].append((task, name))
    found: list[Finding] = []
    if sum(task.duration for pairs in groups.values() for task, _ in pairs) < 0.1 * context.device_time:
        return found
    for (_, where), pairs in groups.items():
        tasks = [task for task, _ in pairs]
        name = Counter(called.removeprefix(f"{_BACKWARD}: ") for _, called in pairs).most_common(1)[0][0]
        cost = sum(task.duration for task in tasks)
        if cost < 0.03 * context.device_time or len(tasks) < 2:
            continue
        kinds = Counter(task.name for task in tasks)
        found.append(
            Finding(
                "layout copies",
                f"{name} rearranges memory: {len(tasks)} copies, {percent(cost, context.device_time)} of device time",
                cost,
                "Replace the view by an operator that computes the result, e.g. index_select or the affinity library's "
                "ChannelShuffle for a channel shuffle, or keep the tensor in the layout that its readers want.",
                where,
                [f"{kind}: {count}" for kind, count in kinds.most_common()],
            )
        )
    return found


def new_shapes(context: Context) -> list[Finding]:
    r"""Operators that meet shapes in a late step which they have not met before: each is compiled anew."""
    if len(context.steps) < 2:
        return []
    seen: set[tuple] = set()
    known: set[str] = set()
    fresh: dict[str, list[Task]] = defaultdict(list)
    for task in context.profile.tasks:
        if task.kind != "op":
            continue
        signature = (task.name, task.inputs, task.attributes)
        if signature in seen:
            continue
        seen.add(signature)
        at = task.op.start if task.op is not None else task.submitted or task.start
        number = context.step_number(at)
        if number <= 0:
            known.add(task.name)
        elif task.name in known:
            fresh[task.name].append(task)
    if not fresh or sum(map(len, fresh.values())) < 3:
        return []
    calls = {call.task: call.duration for call in context.profile.calls}
    tasks = [task for group in fresh.values() for task in group]
    cost = sum(calls.get(task.id, 0.0) for task in tasks)
    details = [
        f"{name}: {len(group)} new, e.g. [{group[0].inputs[0]}]"
        for name, group in sorted(fresh.items(), key=lambda item: -len(item[1]))[:8]
    ]
    return [
        Finding(
            "compilation in every step",
            f"{len(tasks)} operators meet new shapes after the first step and are compiled again",
            cost,
            "Pad or bucket what changes its shape, or use torch.npu.set_start_fuzz_compile_step so that one "
            "compilation covers all shapes.",
            context.where(tasks[0].op),
            details,
        )
    ]


def small_ops(context: Context) -> list[Finding]:
    r"""Many small operators of one kind from one loop of Python."""
    found = []
    groups: dict[tuple[str, str, int], list[HostOp]] = defaultdict(list)
    for op in context.profile.ops:
        if op.kind != "op" or (op.parent is not None and op.parent.kind == "op"):
            continue
        caller = context.caller(op)
        if caller is None or f"{os.sep}nn{os.sep}" in caller[0] or caller[0].startswith("torch/nn/"):
            continue
        tasks = _all_tasks(op)
        # By size, not by time: how long a small operator takes depends on what else the machine does.
        if tasks and all(task.kind == "op" for task in tasks) and sum(task.bytes for task in tasks) <= SMALL:
            place = op.called_at or f"{caller[0]}:{caller[1]} {caller[2]}"
            groups[(place, op.name, context.step_number(op.start))].append(op)
    storms: dict[str, dict[str, list[HostOp]]] = defaultdict(lambda: defaultdict(list))
    for (place, name, _), ops in groups.items():
        if len(ops) >= 24:
            storms[place][name] += ops
    for place, parts in storms.items():
        cost = sum(op.duration for ops in parts.values() for op in ops)
        count = sum(map(len, parts.values()))
        if count < 0.1 * len(context.profile.tasks):
            continue
        found.append(
            Finding(
                "small-operator storm",
                f"{count} small operators from one place, {cost / 1000:.2f} ms of the host's time",
                cost,
                "Do them at once: torch._foreach_* over lists, torch.stack, or an optimizer with foreach or fused.",
                place,
                [f"{name}: {len(ops)}" for name, ops in sorted(parts.items(), key=lambda part: -len(part[1]))],
            )
        )
    return found


def _all_tasks(op: HostOp) -> list[Task]:
    return [*op.tasks, *(task for child in op.children for task in _all_tasks(child))]


def loader_stalls(context: Context) -> list[Finding]:
    r"""Time in which the host waits for its data loader."""
    ranges = [op for op in context.profile.ops if op.name.startswith("enumerate(DataLoader)")]
    cost = sum(op.duration for op in ranges)
    if cost < 0.1 * context.span:
        return []
    idle = cost - sum(
        max(0.0, min(op.end, end) - max(op.start, start)) for op in ranges for start, end in context.busy_stretches
    )
    if idle < 0.05 * context.span:
        return []
    return [
        Finding(
            "data loader stall",
            f"the data loader takes {percent(cost, context.span)} of the time, and the device idles for most of it",
            idle,
            "Give DataLoader num_workers, pin_memory=True and prefetch_factor; do the transforms' work elsewhere.",
            context.where(ranges[0]),
        )
    ]


def copies(context: Context) -> list[Finding]:
    r"""Copies between host and device that are a large part of the whole."""
    found = []
    for name in ("Memcpy HtoD", "Memcpy DtoH"):
        tasks = [task for task in context.profile.tasks if task.name == name]
        cost = sum(task.duration for task in tasks)
        if cost < 0.15 * context.span or len(tasks) < 2:
            continue
        groups = Counter(context.where(task.op) for task in tasks)
        found.append(
            Finding(
                "copies",
                f"{len(tasks)} times {name}, {percent(cost, context.span)} of the time",
                cost,
                "Keep what does not change on the device; pin host memory and copy with non_blocking=True.",
                groups.most_common(1)[0][0],
            )
        )
    return found


def ai_cpu(context: Context) -> list[Finding]:
    r"""Operators on AI CPU that are a large part of the device's time."""
    tasks = [task for task in context.profile.tasks if task.core == "AI_CPU"]
    cost = sum(task.duration for task in tasks)
    if cost < 0.1 * context.device_time or len(tasks) < 2:
        return []
    kinds = Counter(task.name for task in tasks)
    return [
        Finding(
            "operators on AI CPU",
            f"{len(tasks)} operators run on AI CPU, {percent(cost, context.device_time)} of the device's time",
            cost,
            "AI CPU is far slower than AI Core. Use a dtype or an operator that AI Core has, e.g. int32 for int64.",
            context.where(tasks[0].op),
            [f"{name}: {count}" for name, count in kinds.most_common(8)],
        )
    ]


def failures(context: Context) -> list[Finding]:
    r"""Operators that failed on the device."""
    tasks = [task for task in context.profile.tasks if task.failed]
    return [
        Finding(
            "failed operators",
            f"{len(tasks)} operators failed on the device, the first is {tasks[0].name}",
            sum(task.duration for task in tasks),
            "torch.npu.synchronize() raises the reason.",
            context.where(tasks[0].op),
        )
    ] if tasks else []  # fmt: skip


def memory(context: Context) -> list[Finding]:
    r"""Memory that the allocator holds and nobody uses, at the peak."""
    events = [event for event in context.profile.memory if int(event.get("Device Type", 0)) == 20]
    if not events:
        return []
    peak = max(events, key=lambda event: int(event.get("Total Allocated", 0)))
    used, held = int(peak.get("Total Allocated", 0)), int(peak.get("Total Reserved", 0))
    if held - used < 256 * 2**20 or held < 1.5 * used:
        return []
    return [
        Finding(
            "fragmented memory",
            f"at the peak {used >> 20} MB are used, but {held >> 20} MB held",
            0.0,
            "Try PYTORCH_NPU_ALLOC_CONF=expandable_segments:True; allocate large tensors first and in fixed sizes.",
        )
    ]
