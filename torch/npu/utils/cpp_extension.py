r"""Operators outside of this repository: C++ extensions with NPU kernels, and operators for the simulated device.

:func:`NpuExtension` is for a ``setup.py``, as ``CUDAExtension`` is; ``torch.utils.cpp_extension`` has it, too.
:func:`load` compiles just in time. :func:`build_simulator_ops` makes a library that ``ASCEND_CUSTOM_OPP_PATH`` finds;
so does ``python -m torch.npu.utils.cpp_extension OPP_PATH SOURCES...``.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

_LIBRARIES = ("c10_npu", "torch_npu")
_SIMULATOR_FOLDER = os.path.join("op_impl", "simulator")

__all__ = ["NpuExtension", "build_simulator_ops", "load"]


def NpuExtension(name, sources, *args, **kwargs):
    r"""Return a ``setuptools.Extension`` for C++ sources that use the NPU's kernels (``OpCommand``) and streams.

    The arguments are those of :func:`torch.utils.cpp_extension.CppExtension`; headers below ``ATen/native/npu``,
    ``c10/npu`` and ``acl`` are found, and ``libtorch_npu`` and ``libc10_npu`` are linked. Sources are C++20.

    Example::

        setup(
            name="npu_example",
            ext_modules=[NpuExtension("npu_example._C", ["swish_gate.cpp"])],
            cmdclass={"build_ext": BuildExtension},
        )
    """
    from torch.utils.cpp_extension import CppExtension

    kwargs["libraries"] = [*kwargs.get("libraries", []), *_LIBRARIES]
    return CppExtension(name, sources, *args, **kwargs)


def load(name, sources, extra_ldflags=None, **kwargs):
    r"""Compile and load an extension like :func:`torch.utils.cpp_extension.load`, linked with the NPU's libraries."""
    from torch.utils import cpp_extension

    flags = [*(extra_ldflags or []), *(f"-l{library}" for library in _LIBRARIES)]
    return cpp_extension.load(name, sources, extra_ldflags=flags, **kwargs)


def build_simulator_ops(
    sources: str | Sequence[str], opp_path: str | os.PathLike, name: str | None = None, extra_cflags: Sequence[str] = ()
) -> Path:
    r"""Compile operators for the simulated device into ``opp_path/op_impl/simulator/lib<name>.so``; returns the path.

    A process that starts with ``ASCEND_CUSTOM_OPP_PATH=opp_path`` has them. The sources include
    ``<simulator/custom_op.h>``, which shows what they look like.

    Args:
        sources: one C++ source file, or several.
        opp_path: the folder; made if it is not there.
        name: default: the stem of the first source.
        extra_cflags: further flags of the compiler.

    Raises:
        FileNotFoundError: a source is not there.
        RuntimeError: the compiler failed; the text holds what it said.
    """
    from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

    paths = [Path(source) for source in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if not paths:
        raise ValueError("build_simulator_ops: there are no sources")
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"build_simulator_ops: there is no source {path}")
    folder = Path(opp_path, _SIMULATOR_FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"lib{name or paths[0].stem}.so"
    scratch = target.with_suffix(f".{os.getpid()}.partial")  # not *.so: a half-written library is never opened
    command = [
        get_cxx_compiler(),
        *("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall"),
        *(f"-isystem{path}" for path in include_paths()),
        *extra_cflags,
        *map(str, paths),
        *(f"-L{path}" for path in library_paths()),
        *("-lc10", "-ltorch_cpu", "-o", str(scratch)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        scratch.unlink(missing_ok=True)
        raise RuntimeError(
            f"build_simulator_ops: the compiler failed:\n{' '.join(command)}\n{done.stdout}{done.stderr}"
        )
    scratch.replace(target)
    return target


def main(argv: Sequence[str] | None = None) -> int:
    r"""The command line of :func:`build_simulator_ops`; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m torch.npu.utils.cpp_extension",
        description=f"Compile operators for the simulated NPU (torch {torch.__version__}).",
    )
    parser.add_argument("opp_path", help="folder for ASCEND_CUSTOM_OPP_PATH, made if it is not there")
    parser.add_argument("sources", nargs="+", help="C++ sources that include <simulator/custom_op.h>")
    parser.add_argument("--name", help="of the library (default: the stem of the first source)")
    args = parser.parse_args(argv)
    try:
        print(build_simulator_ops(args.sources, args.opp_path, args.name))
    except (RuntimeError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
