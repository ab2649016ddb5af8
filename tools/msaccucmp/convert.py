# ACL dump files -> numpy files; what is in a dump file is acl_dump.py's business.
"""`msaccucmp.py convert`."""

import os
import sys

import acl_dump
import numpy as np

OK, FAILED, REFUSED = 0, 1, 2


def files_of(path: str) -> list[str]:
    """The dump files that `path` (a file or a folder, with all below it) stands for."""
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, _, names in os.walk(path):
        found += [os.path.join(folder, name) for name in names if acl_dump.is_dump_name(name)]
    return sorted(found)


def run(path: str, output: str, wanted: str | None) -> int:
    """Converts a file or a folder; prints what was written, and what could not be read. Returns the exit status."""
    if not os.path.exists(path):
        print(f"msaccucmp.py: {path}: no such file or folder", file=sys.stderr)
        return REFUSED
    files = files_of(path)
    if not files:
        print(f"msaccucmp.py: {path} holds no dump files (op_type.op_name.taskid.stream_id.timestamp)", file=sys.stderr)
        return REFUSED
    os.makedirs(output, exist_ok=True)
    written = failed = 0
    for file in files:
        try:
            dump = acl_dump.read(file)
            for part, items in (("input", dump.inputs), ("output", dump.outputs)):
                for i, item in enumerate(items):
                    if item.absent:  # an optional operand that the operator was not given
                        continue
                    array = acl_dump.to_format(item, wanted) if wanted else item.array
                    np.save(os.path.join(output, dump.npy_name(part, i)), array)
                    written += 1
        except ValueError as error:
            failed += 1
            print(f"msaccucmp.py: {error}", file=sys.stderr)
    print(f"{len(files) - failed} of {len(files)} dump files converted to {written} .npy files in {output}")
    return FAILED if failed else OK
