# ACL dump files -> numpy files; what is in a dump file is acl_dump.py's business.
"""`msaccucmp.py convert`."""

import os
import sys

import acl_dump
import numpy as np
from output import make_folder, whole_file

OK, FAILED, REFUSED = 0, 1, 2


def files_of(path: str, trouble) -> list[str]:
    """The dump files that `path` (a file or a folder, with all below it) stands for.

    `trouble(text)` is told of folders that cannot be read.
    """
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, _, names in os.walk(path, onerror=lambda error: trouble(f"{error.filename}: {error.strerror}")):
        found += [os.path.join(folder, name) for name in names if acl_dump.is_dump_name(name)]
    return sorted(found)


def run(path: str, output: str, wanted: str | None) -> int:
    """Converts a file or a folder; prints what was written, and what could not be read. Returns the exit status."""
    problems: list[str] = []

    def trouble(text: str) -> None:
        problems.append(text)
        print(f"msaccucmp.py: {text}", file=sys.stderr)

    if not os.path.exists(path):
        trouble(f"{path}: no such file or folder")
        return REFUSED
    files = files_of(path, trouble)
    if not files:
        trouble(f"{path} holds no dump files (op_type.op_name.taskid.stream_id.timestamp)")
        return REFUSED
    make_folder(output)
    made: dict[str, str] = {}  # the file to the dump it is of
    converted = 0
    for file in files:
        try:
            if not os.path.isfile(file):
                raise ValueError(f"{file}: neither a file nor a folder")
            arrays = _arrays(file, wanted)
        except (ValueError, OSError) as error:
            trouble(f"{file}: {error.strerror}" if isinstance(error, OSError) else str(error))
            continue
        for name, array in arrays.items():
            # Dumps of several devices or sessions may agree in all that the name holds: each stays in its own folder.
            if os.path.join(output, name) in made:
                below = os.path.relpath(os.path.dirname(file), path)
                make_folder(os.path.join(output, below))
                name = os.path.join(below, name)
            target = os.path.join(output, name)
            with whole_file(target) as stream:
                np.save(stream, array)
            made[target] = file
        converted += 1
    print(f"{converted} of {len(files)} dump files converted to {len(made)} .npy files in {output}")
    return FAILED if problems else OK


def _arrays(file: str, wanted: str | None) -> dict[str, np.ndarray]:
    """The operands of a dump file by the names of their .npy files; ValueError names the file."""
    dump = acl_dump.read(file)
    arrays = {}
    for part, i, item in dump.tensors():
        if item.absent:  # an optional operand that the operator was not given
            continue
        name = dump.npy_name(part, i)
        try:
            arrays[name] = acl_dump.to_format(item, wanted) if _applies(item, wanted) else item.array
        except ValueError as error:
            raise ValueError(f"{file}: {part} {i}: {error}") from error
        if wanted and not _applies(item, wanted):
            print(f"note: {name} is {item.format} of shape {list(arrays[name].shape)}, not {wanted}", file=sys.stderr)
    return arrays


def _applies(item, wanted: str | None) -> bool:
    """Whether the wanted layout is one of an operand; a bias has none of NHWC, and is written as it is."""
    if not wanted:
        return False
    if wanted in ("ND", item.format):
        return True
    return acl_dump.is_plain_format(wanted) and len(item.original_shape) == len(wanted)
