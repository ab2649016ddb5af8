"""Configures and builds the native half with CMake and Ninja."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.setup_helpers.env import ROOT, BuildError, Switches, build_dir

_INSTALL_HINT = {
    "cmake": "pip install -r requirements-build.txt",
    "ninja": "pip install -r requirements-build.txt",
    "c++": "apt install g++, or yum install gcc-c++",
}


def find_tool(name: str) -> str:
    """The path of a build tool, the one beside this interpreter first; raises BuildError that says how to install it."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise BuildError(f"{name} is missing: {_INSTALL_HINT[name]}")
    return found


def _compiler() -> str:
    for name in filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")):
        if found := shutil.which(name):
            return found
    raise BuildError(f"a C++ compiler is missing: {_INSTALL_HINT['c++']}")


def library_dir(switches: Switches) -> Path:
    """Where the built libraries lie, laid out as in site-packages."""
    return build_dir() / switches.variant() / "lib"


def build_native(switches: Switches, base_torch: Path) -> Path:
    """Builds what changed and returns `library_dir`; raises BuildError when the compiler fails."""
    folder = build_dir() / switches.variant() / "cmake"
    output = library_dir(switches)
    settings = {
        "CMAKE_MAKE_PROGRAM": find_tool("ninja"),
        "CMAKE_CXX_COMPILER": _compiler(),
        "NPU_BASE_TORCH": base_torch,
        "NPU_OUTPUT_DIR": output,
        "NPU_PYTHON": sys.executable,
        "NPU_DEBUG": "ON" if switches["DEBUG"] else "OFF",
        "USE_HCCL": "ON" if switches["USE_HCCL"] else "OFF",
    }
    configure = [find_tool("cmake"), "-G", "Ninja", "-S", str(ROOT), "-B", str(folder), "--log-level=WARNING"]
    configure += [f"-D{name}={value}" for name, value in settings.items()]
    stamp = folder / "configured.txt"
    wanted = "\n".join(configure)
    if not (folder / "build.ninja").exists() or not stamp.exists() or stamp.read_text() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        _run(configure, "CMake could not configure the build")
        stamp.write_text(wanted)
    _run([find_tool("ninja"), "-C", str(folder), f"-j{switches.max_jobs}", "-k0"], "the native build failed", quiet=True)
    return output


def _run(command: list[str], failure: str, quiet: bool = False) -> None:
    if quiet and not sys.stdout.isatty():
        command = [*command, "--quiet"]
    if subprocess.run(command, check=False).returncode != 0:
        raise BuildError(f"{failure}: {' '.join(command[:1] + command[-3:])}")
