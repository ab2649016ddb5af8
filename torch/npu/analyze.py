r"""
What a profile says, and what to do about it.

python -m torch.npu.analyze TRACE_OR_FOLDER [--html PAGE] [--json FILE] [--png PICTURE] [--card "Atlas 910B"]
python -m torch.npu.analyze --compare OLD NEW

A profile is a trace of torch.profiler, a result folder of torch.npu.profiler, or a folder PROF_* of torch.npu.profile.
Traces made with_stack=True name the script's functions, and those with profile_memory=True the memory's holders.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ._profile import events, report, roofline


def print_report(data: dict[str, Any]) -> None:
    r"""In colours and tables on a terminal that rich knows, else as plain text."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        Console = None  # type: ignore[assignment,misc]
    if Console is None or not sys.stdout.isatty():
        print(report.text(data))
        return
    console = Console()
    shares = data["whole"]
    console.print(f"[bold]{data['source']}[/bold]  ({data['clock']})")
    console.print(
        f"{report.ms(data['span_us'])}, {data['tasks']} tasks; device-bound {shares['device_bound']:.0%}, host-bound "
        f"{shares['host_bound']:.0%}, wait-bound {shares['wait_bound']:.0%}"
    )
    for title, rows in report.sections(data):
        table = Table(title=title, title_justify="left")
        for column in ("name", "time", "share", "count"):
            table.add_column(column, justify="left" if column == "name" else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print("[bold]Findings[/bold]" if data["findings"] else "[green]Findings: none[/green]")
    for finding in data["findings"]:
        console.print(f"[red]{finding['kind']}[/red]: {finding['title']}", markup=True)
        if finding["where"]:
            console.print(f"  at {finding['where']}", markup=False)
        for detail in finding["details"]:
            console.print(f"  - {detail}", markup=False)
        console.print(f"  {finding['advice']}", markup=False)


def print_comparison(old: dict[str, Any], new: dict[str, Any]) -> None:
    r"""What became slower, then what became faster."""
    print(f"device time of a step: {old['source']} against {new['source']}")
    for row in report.compare(old, new):
        if abs(row["change_us"]) >= 0.5:
            times = f"{row['old_us'] / 1000:.3f} -> {row['new_us'] / 1000:.3f}"
            print(f"  {row['change_us'] / 1000:+10.3f} ms  {times}  {row['name']}")
    new_kinds = {finding["kind"] for finding in new["findings"]} - {finding["kind"] for finding in old["findings"]}
    for kind in sorted(new_kinds):
        print(f"  new: {kind}")


def main(arguments: list[str] | None = None) -> int:
    r"""The command; returns its exit status: 0, or 2 for what cannot be read."""
    parser = argparse.ArgumentParser("python -m torch.npu.analyze", description="What a profile says.")
    parser.add_argument("profile", nargs="?", help="a trace or a folder")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="two profiles of the same script")
    parser.add_argument("--html", help="write a page here")
    parser.add_argument("--png", help="write the roofline picture here; needs matplotlib")
    parser.add_argument("--json", help="write the report here; - prints it")
    parser.add_argument("--card", default="Atlas 910B", help="the card of the modelled clock; 'none' for no model")
    options = parser.parse_args(arguments)
    if (options.profile is None) == (options.compare is None):
        parser.error("name a profile, or two with --compare")
    if options.png and options.card == "none":
        parser.error("--png draws the modelled clock, which --card none leaves out")
    card = None if options.card == "none" else options.card
    try:
        reports = [report.analyze(events.read(path), card) for path in options.compare or [options.profile]]
        if options.html:
            Path(options.html).write_text(report.page(reports[-1]), encoding="utf-8")
        if options.png:
            roofline.png(reports[-1]["model"], options.png)
        if options.json and options.json != "-":
            Path(options.json).write_text(json.dumps(reports[-1], indent=1), encoding="utf-8")
    except KeyError as error:
        print(f"torch.npu.analyze: there is no card {error}; cards.yaml has the known ones", file=sys.stderr)
        return 2
    except (ValueError, OSError, RuntimeError) as error:
        print(f"torch.npu.analyze: {error}", file=sys.stderr)
        return 2
    if options.compare:
        print_comparison(*reports)
    elif options.json == "-":
        print(json.dumps(reports[-1], indent=1))
    else:
        print_report(reports[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
