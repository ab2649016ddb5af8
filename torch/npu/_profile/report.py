r"""What ``torch.npu.analyze`` tells of a profile: as data, as text, as a page, and as a comparison of two."""

import html
import itertools
from collections import defaultdict
from typing import Any

from . import cost, roofline, tables
from .events import HostOp, Profile
from .findings import Context, find_all

FAMILIES = {
    "matrix products": ("MatMul", "BatchMatMul", "Addmm", "Baddbmm"),
    "convolutions": ("Conv", "DepthwiseConv", "Deconv"),
    "normalization": ("BN", "BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RmsNorm"),
    "attention": ("DotProductAttention", "FlashAttention", "PromptFlash"),
    "optimizers": ("Apply", "Fused", "Foreach"),
    "layout and conversion": (
        "Cast",
        "TransData",
        "Transpose",
        "AsStrided",
        "ViewCopy",
        "TensorMove",
        "Slice",
        "Concat",
    ),
    "reductions": ("Reduce", "Softmax", "LogSoftmax", "ArgMax"),
    "pooling": ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"),
}


def family(name: str) -> str:
    r"""Which family an operator of the device belongs to."""
    for title, starts in FAMILIES.items():
        if name.startswith(starts):
            return title
    return "copies" if name.startswith("Mem") else "element-wise and others"


def analyze(profile: Profile, card: str | None = "Atlas 910B") -> dict[str, Any]:
    r"""The whole report; times are microseconds, measured unless their name says modelled."""
    context = Context(profile)
    work = [task for task in profile.tasks if task.kind != "wait"]
    report: dict[str, Any] = {
        "source": profile.source,
        "clock": "measured on the simulated device: its host's speed, not a card's",
        "span_us": context.span,
        "device_busy_us": context.busy,
        "device_us": context.device_time,
        "tasks": len(work),
        "steps": [_step(context, step) for step in context.steps],
        "whole": _shares(context, context.begin, context.end),
        "operators": _totals((task.name, task.duration) for task in work),
        "families": _totals((family(task.name), task.duration) for task in work),
        "host": _totals((op.name, op.self_duration) for op in profile.ops if op.kind == "op")[:30],
        "modules": _totals((_module(context, task.op), task.duration) for task in work if profile.functions),
        "gaps": _gaps(context),
        "memory": _memory(context),
        "findings": [finding.as_dict() for finding in find_all(profile)],
    }
    if card is not None:
        report["model"] = _model(work, card)
    return report


def _totals(pairs: Any) -> list[dict[str, Any]]:
    groups: dict[str, list[float]] = defaultdict(list)
    for name, time in pairs:
        groups[name].append(time)
    rows: list[dict[str, Any]] = [
        {"name": name, "count": len(times), "us": sum(times)} for name, times in groups.items()
    ]
    whole = sum(row["us"] for row in rows) or 1.0
    for row in rows:
        row["share"] = row["us"] / whole
    return sorted(rows, key=lambda row: -row["us"])


def _module(context: Context, op: HostOp | None) -> str:
    if op is not None:
        for function in context.frames.at(op.thread, op.start):
            if function.name.startswith("nn.Module: "):
                return function.name.removeprefix("nn.Module: ")
    return "(no module)"


def _inside(stretches: list[tuple[float, float]], begin: float, end: float) -> float:
    return sum(max(0.0, min(stop, end) - max(start, begin)) for start, stop in stretches)


def _shares(context: Context, begin: float, end: float) -> dict[str, float]:
    r"""Where the time went: the device worked; it idled while the host waited for it; or while the host did others."""
    whole = max(end - begin, 1e-9)
    waits = tables.merged(call for call in context.profile.calls if call.name.startswith("aclrtSynchronize"))
    busy = _inside(context.busy_stretches, begin, end)
    waited = _inside(waits, begin, end)
    both = tables.common(
        context.busy_stretches, [(max(a, begin), min(b, end)) for a, b in waits if b > begin and a < end]
    )
    idle_waiting = max(0.0, waited - both)
    return {
        "device_bound": busy / whole,
        "wait_bound": idle_waiting / whole,
        "host_bound": max(0.0, 1 - (busy + idle_waiting) / whole),
    }


def _step(context: Context, step: HostOp) -> dict[str, Any]:
    return {"name": step.name, "us": step.duration, **_shares(context, step.start, step.end)}


def _gaps(context: Context) -> list[dict[str, Any]]:
    r"""The longest times in which no device worked, and what the host did in their middle."""
    found = []
    for (_, end), (start, _) in itertools.pairwise(context.busy_stretches):
        if start - end > max(50.0, 0.01 * context.span) and end >= context.begin and start <= context.end:
            found.append((start - end, end, start))
    rows = []
    for gap, begin, end in sorted(found, reverse=True)[:10]:
        middle = (begin + end) / 2
        open_ops = [op for op in context.profile.ops if op.start <= middle < op.end]
        op = max(open_ops, key=lambda op: op.start) if open_ops else None
        frames = (
            [f for row in context.frames.rows.values() for f in row if f.start <= middle < f.end] if op is None else []
        )
        name = op.name if op is not None else max(frames, key=lambda f: f.start).name if frames else "nothing recorded"
        rows.append({"us": gap, "at_us": begin - context.begin, "host": name, "where": context.where(op)})
    return rows


def _memory(context: Context) -> dict[str, Any] | None:
    events = [event for event in context.profile.memory if int(event.get("Device Type", 0)) == 20]
    if not events:
        return None
    peak = max(events, key=lambda event: int(event.get("Total Allocated", 0)))
    at = [op for op in context.profile.ops if op.kind == "op" and op.start <= peak["ts"] < op.end]
    held: dict[Any, tuple[int, str]] = {}
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["ts"] > peak["ts"]:
            break
        size = int(event.get("Bytes", 0))
        if size > 0:
            owner = [op for op in context.profile.ops if op.kind == "op" and op.start <= event["ts"] < op.end]
            held[event.get("Addr")] = (size, max(owner, key=lambda op: op.start).name if owner else "")
        else:
            held.pop(event.get("Addr"), None)
    holders: dict[str, int] = defaultdict(int)
    for size, name in held.values():
        holders[name or "(outside operators)"] += size
    return {
        "peak_bytes": int(peak.get("Total Allocated", 0)),
        "reserved_bytes": int(peak.get("Total Reserved", 0)),
        "at": at[-1].name if at else "",
        "holders": [[name, size] for name, size in sorted(holders.items(), key=lambda row: -row[1])[:10]],
    }


def _model(work: list, card: str) -> dict[str, Any]:
    facts = cost.cards()[card]
    groups: dict[str, dict[str, Any]] = {}
    for task in work:
        if task.kind == "hccl":
            continue
        modelled = cost.model(task, card)
        row = groups.setdefault(
            task.name,
            {
                "name": task.name,
                "count": 0,
                "modelled_us": 0.0,
                "flops": 0,
                "bytes": 0,
                "bound": {},
                "cube": cost.is_cube(task),
            },
        )
        row["count"] += 1
        row["modelled_us"] += modelled.time
        row["flops"] += cost.flops(task)
        row["bytes"] += task.bytes
        row["bound"][modelled.bound] = row["bound"].get(modelled.bound, 0.0) + modelled.time
    for row in groups.values():
        row["bound"] = max(row["bound"], key=row["bound"].get)
    rows = sorted(groups.values(), key=lambda row: -row["modelled_us"])
    return {
        "note": f"A model of {facts['description']}, not a measurement: see cards.yaml",
        "card": card,
        "modelled_us": sum(row["modelled_us"] for row in rows),
        "operators": rows,
    }


# ---- text


def ms(us: float) -> str:
    return f"{us / 1000:.3f} ms"


def text(report: dict[str, Any]) -> str:
    r"""The report for a terminal without rich."""
    lines = [f"{report['source']}", f"  {report['clock']}"]
    shares = report["whole"]
    lines.append(
        f"  {ms(report['span_us'])}, {report['tasks']} tasks; device-bound {shares['device_bound']:.0%}, host-bound "
        f"{shares['host_bound']:.0%}, wait-bound {shares['wait_bound']:.0%}"
    )
    for step in report["steps"]:
        lines.append(
            f"  {step['name']}: {ms(step['us'])}; device {step['device_bound']:.0%}, host {step['host_bound']:.0%}, "
            f"waits {step['wait_bound']:.0%}"
        )
    for title, rows in sections(report):
        lines += ["", title]
        lines += [f"  {row[1]:>12}  {row[2]:>6}  {row[3]:>6}  {row[0]}" for row in rows]
    lines += ["", "Findings" if report["findings"] else "Findings: none"]
    for number, finding in enumerate(report["findings"], 1):
        lines.append(f"  {number}. [{finding['kind']}] {finding['title']}")
        if finding["where"]:
            lines.append(f"     at {finding['where']}")
        lines += [f"     - {detail}" for detail in finding["details"]]
        lines.append(f"     {finding['advice']}")
    return "\n".join(lines)


def sections(report: dict[str, Any]) -> list[tuple[str, list[tuple[str, str, str, str]]]]:
    r"""Titles, and rows of name, time, share and count."""
    found = []
    for key, title in (
        ("operators", "Device time by operator"),
        ("families", "Device time by family"),
        ("modules", "Device time by module"),
        ("host", "Host time by operator, without what it calls"),
    ):
        rows = [(r["name"], ms(r["us"]), f"{r['share']:.0%}", str(r["count"])) for r in report[key][:12]]
        if rows:
            found.append((title, rows))
    if report["gaps"]:
        found.append(
            ("Idle gaps of the device, what the host did", [(g["host"] + (f" at {g['where']}" if g["where"] else ""),
              ms(g["us"]), "", "") for g in report["gaps"]])
        )  # fmt: skip
    if (held := report["memory"]) is not None:
        rows = [
            (name, f"{size / 2**20:.1f} MB", f"{size / max(1, held['peak_bytes']):.0%}", "")
            for name, size in held["holders"]
        ]
        found.append((f"Memory at its peak of {held['peak_bytes'] / 2**20:.1f} MB, by who allocated it", rows))
    if (model := report.get("model")) is not None:
        whole = model["modelled_us"] or 1.0
        rows = [
            (f"{r['name']} ({r['bound']})", ms(r["modelled_us"]), f"{r['modelled_us'] / whole:.0%}", str(r["count"]))
            for r in model["operators"][:12]
        ]
        found.append((f"MODELLED time on {model['card']} ({ms(model['modelled_us'])}): {model['note']}", rows))
    return found


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, Any]]:
    r"""Per operator the device time of a step in both, what became slower first."""

    def per_step(report: dict[str, Any]) -> dict[str, float]:
        steps = max(1, len(report["steps"]))
        return {row["name"]: row["us"] / steps for row in report["operators"]}

    first, second = per_step(old), per_step(new)
    rows = [
        {"name": name, "old_us": first.get(name, 0.0), "new_us": second.get(name, 0.0),
         "change_us": second.get(name, 0.0) - first.get(name, 0.0)}
        for name in first.keys() | second.keys()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row["change_us"], row["name"]))


# ---- a page


def page(report: dict[str, Any]) -> str:
    r"""The report as an HTML page of its own, which loads nothing."""
    escape = html.escape
    parts = [f"<h1>{escape(report['source'])}</h1><p>{escape(report['clock'])}</p>"]
    shares = report["whole"]
    parts.append(
        f"<p>{ms(report['span_us'])}, {report['tasks']} tasks: device-bound {shares['device_bound']:.0%}, host-bound "
        f"{shares['host_bound']:.0%}, wait-bound {shares['wait_bound']:.0%}</p><h2>Findings</h2>"
    )
    if not report["findings"]:
        parts.append("<p id='none'>None.</p>")
    for finding in report["findings"]:
        where = f"<br><code>{escape(finding['where'])}</code>" if finding["where"] else ""
        details = "".join(f"<li>{escape(detail)}</li>" for detail in finding["details"])
        parts.append(
            f"<div class='finding'><b>{escape(finding['kind'])}</b>: {escape(finding['title'])}{where}"
            f"<ul>{details}</ul><i>{escape(finding['advice'])}</i></div>"
        )
    for title, rows in sections(report):
        cells = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        parts.append(
            f"<h2>{escape(title)}</h2><table><tr><th>name</th><th>time</th><th>share</th><th>count</th></tr>{cells}</table>"
        )
    if "model" in report:
        parts.append("<h2>Roofline (a model, not measured)</h2>" + roofline.svg(report["model"]))
    return (
        "<!DOCTYPE html><html><head><meta charset='utf-8'><title>npu profile</title><style>"
        "body{font:14px sans-serif;margin:2em;max-width:70em}td,th{padding:2px 10px;text-align:left}"
        ".finding{border-left:4px solid #c60;padding:4px 10px;margin:8px 0}</style></head><body>"
        + "".join(parts)
        + "</body></html>"
    )
