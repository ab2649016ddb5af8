#!/usr/bin/env python3
"""Which operators a run has compiled: reads the host's logs, writes ascend_op_info_summary.txt.

python3 get_ascend_op_info.py --host_log_folder $HOME/ascend/log/plog

The logs need level info (ASCEND_GLOBAL_LOG_LEVEL=1). Each line of the summary is an operator's type with its operands
and attributes, each combination once. What is printed counts them, above all TransData and Cast, which are often
avoidable, and types that were compiled for many combinations, which shapes that change bring about.
"""

import argparse
import os
import sys
from collections import Counter
from pathlib import Path

MARK = "aclopCompile::aclOp"
SUMMARY = "ascend_op_info_summary.txt"
MANY = 8  # combinations of one type from which on it is listed


def parse_line(line: str) -> tuple[str, str] | None:
    """An operator's type and what follows it, or None for a line that tells of no compilation."""
    if not line.startswith("[INFO] ASCENDCL") or MARK not in line or "OpType: " not in line:
        return None
    text = line.split("OpType: ", 1)[1].rstrip("\n")[:-1]  # without the bracket that ends it
    kind, _, rest = text.partition(",")
    return kind, rest[1:]


def read_logs(folder: str) -> Counter[tuple[str, str]]:
    """How often each operator was compiled, in the order of appearance; files other than *.log are passed over."""
    found: Counter[tuple[str, str]] = Counter()
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not name.endswith(".log") or not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            found.update(entry for line in file if (entry := parse_line(line)) is not None)
    return found


def describe(found: Counter[tuple[str, str]]) -> str:
    """What is printed."""
    kinds: Counter[str] = Counter()
    combinations: Counter[str] = Counter()
    for (kind, _), count in found.items():
        kinds[kind] += count
        combinations[kind] += 1
    lines = [f"{sum(kinds.values())} compilations of {len(found)} operators of {len(kinds)} types, see {SUMMARY}"]
    for kind in ("TransData", "Cast"):
        lines.append(f"{kind}: {combinations[kind]} operators")
    for kind, count in combinations.most_common():
        if count >= MANY:
            lines.append(f"{kind} was compiled for {count} combinations of shapes and attributes")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Which operators a run has compiled, from the host's logs.")
    parser.add_argument("--host_log_folder", default="./", help="the folder of the *.log files; default here")
    folder = parser.parse_args().host_log_folder
    try:
        found = read_logs(folder)
    except OSError as error:
        print(f"get_ascend_op_info: {error}", file=sys.stderr)
        return 2
    Path(SUMMARY).write_text("".join(f"{kind} {rest}\n" for kind, rest in found), encoding="utf-8")
    print(describe(found))
    if not found:
        print("The logs tell of no compilation: set ASCEND_GLOBAL_LOG_LEVEL=1 before the run.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
