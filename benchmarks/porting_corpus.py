# The porting tool over public packages that nobody here wrote: every file converts or is reported, what was converted
# compiles, a second run changes nothing. The packages are inputs only: they are fetched into a scratch folder.
"""python benchmarks/porting_corpus.py [--wheels DIR] [--json FILE] [PACKAGE ...]

Prints per package: files, lines, changed, unsupported uses, failed files, crashes, seconds, lines per second.
Exit status 1 if anything crashed, did not compile, changed in a second run, or ran below 1,000 lines per second.
"""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools", "ms_fmk_transplt"))

from transplant.convert import Converter  # noqa: E402
from transplant.records import FileReport  # noqa: E402
from transplant.source import Source  # noqa: E402
from transplant.unit import Options  # noqa: E402

PACKAGES = (
    "timm", "segmentation-models-pytorch", "torchvision", "transformers", "lightning", "ultralytics", "kornia",
    "pytorch-metric-learning", "accelerate", "torchmetrics", "monai", "fastai", "pytorch-ignite", "yolov5",
)  # fmt: skip
SLOWEST = 1000  # lines per second
COLUMNS = ("package", "files", "lines", "changed", "ported", "unsupported", "failed", "crashed", "seconds", "lines/s")


def fetch(package: str, folder: str) -> str | None:
    """Path of the package's wheel, fetched into ``folder`` if it is not there; None where that fails."""
    pattern = os.path.join(folder, package.replace("-", "_") + "-*.whl")
    if not glob.glob(pattern):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            print(f"{package}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    return next(iter(glob.glob(pattern)), None)


def compiles(data: bytes, name: str) -> bool:
    try:
        compile(data, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def convert_file(data: bytes, name: str, row: dict, problems: list[str]) -> None:
    """Convert one file (timed) and check the result (not timed)."""
    converter, strict = convert_file.converters
    began = time.perf_counter()
    try:
        new, report = converter.convert(data, name)
    except Exception as error:  # a crash is what this benchmark looks for
        row["crashed"] += 1
        problems.append(f"{name}: {type(error).__name__}: {error}")
        return
    finally:
        row["seconds"] += time.perf_counter() - began
    row["unsupported"] += len(report.unsupported)
    row["failed"] += report.status == "failed"
    row["ported"] += report.status == "ported"
    if report.status == "failed":
        print(f"  failed: {name}: {report.reason}", file=sys.stderr)
    if report.status != "converted":
        return
    row["changed"] += 1
    if compiles(data, name) and not compiles(new, name):
        problems.append(f"{name}: does not compile after conversion")
    # The tool leaves files alone that name npu; the rules themselves must also have nothing left to do.
    again = strict.rewrite(Source(new), FileReport(name))
    if len(again.edits):
        problems.append(f"{name}: a second run changes {[(c.line, c.before, c.after) for c in again.changes()][:3]}")


def run(package: str, wheel: str, problems: list[str]) -> dict:
    row = dict.fromkeys(COLUMNS, 0) | {"package": package}
    with zipfile.ZipFile(wheel) as archive:
        files = [(name, archive.read(name)) for name in archive.namelist() if name.endswith(".py")]
    for name, data in files:
        convert_file(data, name, row, problems)
    row["files"], row["lines"] = len(files), sum(data.count(b"\n") for _, data in files)
    row["seconds"] = round(row["seconds"], 2)
    row["lines/s"] = int(row["lines"] / max(row["seconds"], 0.01))
    return row


def show(row: dict | None) -> None:
    widths = (30, 6, 8, 8, 7, 12, 7, 8, 8, 9)
    cells = COLUMNS if row is None else [row[column] for column in COLUMNS]
    print(
        "".join(
            f"{str(cell):<{w}}" if i == 0 else f"{str(cell):>{w}}"
            for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument(
        "--wheels", default=os.path.join(tempfile.gettempdir(), "npu_porting_corpus"), help="where wheels are kept"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    args = parser.parse_args()
    os.makedirs(args.wheels, exist_ok=True)
    convert_file.converters = (Converter(Options()), Converter(Options(), respect_npu=False))
    rows, problems = [], []
    show(None)
    for package in args.packages:
        wheel = fetch(package, args.wheels)
        if wheel is None:
            problems.append(f"{package}: not to be had")
            continue
        rows.append(run(package, wheel, problems))
        show(rows[-1])
    total = {column: sum(row[column] for row in rows) for column in COLUMNS[1:-1]} | {"package": f"all ({len(rows)})"}
    total["seconds"] = round(total["seconds"], 2)
    total["lines/s"] = int(total["lines"] / max(total["seconds"], 0.01))
    show(total)
    if rows and total["lines/s"] < SLOWEST:
        problems.append(f"{total['lines/s']} lines/s; {SLOWEST} are wanted")
    for problem in problems:
        print(f"PROBLEM {problem}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "total": total, "problems": problems}, file, indent=1)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
