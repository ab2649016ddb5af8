r"""
Tunes operators on the simulated device, as CANN's aoe does on a card.

python -m torch.npu.aoe --job_type=2 --model_path=FOLDER

FOLDER holds what torch.npu.set_aoe(FOLDER) has written: one file for each operator. Each is run with every kernel that
it leaves open, by one thread and by all, and the fastest goes into the knowledge base, which later processes use.
TUNE_BANK_PATH says where that is. An operator that is there already is tuned again only with REPEAT_TUNE=True.
Tune on a machine that does nothing else: what is measured is what the machine did at that time.
"""

import argparse
import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

# For one operator, unless it takes its time.
_MILLISECONDS = 400
# A base as large as that is beyond what the device reads.
_MOST_BYTES = 1 << 20


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    r"""One process at a time changes a base; readers need no lock, they see the old file or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file.with_name(file.name + ".lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(file: Path, place: dict[str, Any]) -> dict[str, dict[str, Any]]:
    r"""The operators of a base that was measured in this place; those of another, or of a broken file, are no use."""
    try:
        base = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        print(f"the knowledge base {file} is replaced: {error}", file=sys.stderr)
        return {}
    if not isinstance(base, dict) or any(base.get(name) != value for name, value in place.items()):
        print(f"the knowledge base {file} is replaced: it was measured in another place", file=sys.stderr)
        return {}
    operators = base.get("operators")
    return operators if isinstance(operators, dict) else {}


def add_to_base(file: Path, place: dict[str, Any], found: dict[str, dict[str, Any]]) -> int:
    r"""Put what was found into the base, besides what others have put there meanwhile; return how many it has.

    Raises:
        ValueError: there would be more than the device reads; the base stays as it is.
    """
    with _locked(file):
        operators = _read(file, place) | found
        text = json.dumps(place | {"operators": operators}, indent=1) + "\n"
        if len(text.encode()) > _MOST_BYTES:
            raise ValueError(f"{file}: {len(operators)} operators are more than one knowledge base holds")
        temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, file)
    return len(operators)


def _describe(result: dict[str, Any]) -> str:
    ways, choice = result["ways"], result["choice"]
    if choice == "default":
        return f"stays as it is, {ways['default']:.1f} us"
    return f"{choice}, {ways[choice]:.1f} us instead of {ways['default']:.1f} ({ways['default'] / ways[choice]:.2f} x)"


def _tuned(graph: Path, milliseconds: int) -> dict[str, Any]:
    """What the simulated device found of an operator in that time; 0: what it is, and how many choices it has."""
    text = torch._C._npu_tuneGraph(str(graph), milliseconds)
    if text is None:
        raise RuntimeError("this device does not tune")
    return json.loads(text)


def tune(folder: Path) -> int:
    r"""Tune the operators of a folder; returns the exit status."""
    torch.npu.init()
    known = torch._C._npu_knowledge()
    if known is None:
        print("aoe: this is a card; CANN's own aoe tunes it", file=sys.stderr)
        return 1
    state = json.loads(known)
    if not state["file"]:
        print("aoe: neither TUNE_BANK_PATH nor HOME says where the knowledge base is", file=sys.stderr)
        return 1
    file, place = Path(state["file"]), state["place"]
    graphs = sorted(folder.glob("*.txt"))
    if not graphs:
        print(f"aoe: {folder} holds no graphs; torch.npu.set_aoe writes them", file=sys.stderr)
        return 1
    if (load := os.getloadavg()[0]) > (os.cpu_count() or 1) / 2:
        print(f"aoe: the machine is busy (load {load:.1f}): what is found now may be slower later", file=sys.stderr)
    repeat = os.environ.get("REPEAT_TUNE", "").lower() == "true"
    before = {} if repeat else _read(file, place)
    found: dict[str, dict[str, Any]] = {}
    failed = again = fixed = 0
    for graph in graphs:
        try:
            result = _tuned(graph, 0)
            identity = result["identity"]
            if identity in before or identity in found:
                again += 1
                continue
            if result["choices"] < 2:
                fixed += 1
                continue
            result = _tuned(graph, _MILLISECONDS)
        except RuntimeError as error:
            failed += 1
            print(f"{graph.name}: {str(error).strip()}", file=sys.stderr)
            continue
        print(f"{graph.name}: {_describe(result)}", flush=True)
        ways = dict.fromkeys(["default", result["choice"]])
        found[identity] = {"choice": result["choice"], "microseconds": {way: result["ways"][way] for way in ways}}
    total = add_to_base(file, place, found)
    faster = sum(entry["choice"] != "default" for entry in found.values())
    print(
        f"{len(graphs)} graphs: {len(found)} tuned, {faster} of them faster; {again} known before, "
        f"{fixed} leave nothing open, {failed} failed"
    )
    print(f"{file}: {total} operators")
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m torch.npu.aoe", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-j", "--job_type", type=int, choices=(1, 2), required=True, help="2: operators; 1, subgraphs, is a card's only"
    )
    parser.add_argument("--model_path", type=Path, required=True, help="the folder of the graphs")
    options = parser.parse_args(arguments)
    if options.job_type == 1:
        parser.error("the simulated device has no subgraphs to tune; --job_type=2 tunes its operators")
    if not options.model_path.is_dir():
        parser.error(f"there is no folder {options.model_path}")
    return tune(options.model_path)


if __name__ == "__main__":
    sys.exit(main())
