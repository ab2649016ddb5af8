"""Generates the NPU kernels that npu_native_functions*.yaml declares, and the registrations of all NPU kernels.

    python gen_npu_kernels.py --output-dir DIR [--source aten/src/ATen/native/npu]

The format of the YAML files is described at the top of npu_native_functions.yaml. Written are
    NPUNativeFunctions.h      declarations of the hand-written kernels
    GeneratedKernels_N.cpp    kernels of the one-operator entries, with their registrations
    GeneratedAten.cpp         registrations of the operators that the boxed kernel of frame/registration/AtenOp.h serves
    RegisterNPU.cpp           registrations of the hand-written kernels
    NPUCustomFunctions.h      declarations of the functions behind operators that upstream does not have
    GeneratedCustom.cpp       kernels and gradients of those that are one IR operator
    RegisterNPUCustom.cpp     schemas and registrations of those operators
    npu_operators.json        what is native, for the coverage tool
A file is rewritten only if its text changes. A wrong entry ends the program with `FILE:LINE: reason` and status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from npu_custom import emit_custom_declarations, emit_custom_registrations
from npu_declared import emit_declared
from npu_emit import HEADER, emit_aten_ops, emit_declarations, emit_kernels, emit_registrations
from npu_entries import EntryError, load_entries

SHARDS = 6
SOURCE = Path(__file__).resolve().parents[2] / "aten/src/ATen/native/npu"


def write_if_changed(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text() == text:
        return False
    path.write_text(text)
    return True


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, required=True, help="folder that the generated files are written to")
    parser.add_argument("--source", type=Path, default=SOURCE, help="folder of npu_native_functions*.yaml")
    parser.add_argument("--native-functions", type=Path, help="upstream's native_functions.yaml (default: torchgen's)")
    args = parser.parse_args(argv)
    try:
        table = load_entries(args.source, args.native_functions)
    except EntryError as error:
        print(error, file=sys.stderr)
        return 1
    out = args.output_dir
    write_if_changed(out / "NPUNativeFunctions.h", emit_declarations(table))
    # By the name's hash: an entry more or less changes one file only.
    shards = [[op for op in table.ir_ops if zlib.crc32(op.name.encode()) % SHARDS == i] for i in range(SHARDS)]
    rules = [path.relative_to(args.source) for kind in ("Args", "Rules") for path in args.source.glob(f"*/*{kind}.h")]
    headers = sorted(path.as_posix() for path in rules if path.parts[0] != "frame")
    for i, ops in enumerate(shards):
        write_if_changed(out / f"GeneratedKernels_{i}.cpp", emit_kernels(ops, headers, table.missing))
    write_if_changed(out / "GeneratedAten.cpp", emit_aten_ops(table))
    write_if_changed(out / "RegisterNPU.cpp", emit_registrations(table))
    write_if_changed(out / "NPUCustomFunctions.h", emit_custom_declarations(table.custom, HEADER))
    write_if_changed(out / "GeneratedCustom.cpp", emit_declared(table.custom, headers, HEADER))
    write_if_changed(out / "RegisterNPUCustom.cpp", emit_custom_registrations(table.custom, HEADER))
    write_if_changed(out / "npu_operators.json", json.dumps(table.summary(), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
