"""Configures and builds the native half with CMake and Ninja."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.setup_helpers import progress
from tools.setup_helpers.env import ROOT, BuildError, Switches, build_dir

_INSTALL_HINT = {
    "cmake": "pip install -r requirements-build.txt",
    "ninja": "pip install -r requirements-build.txt",
    "c++": "apt install g++, or yum install gcc-c++",
}


def find_tool(name: str) -> str:
    """The path of a build tool, the one beside this interpreter first; BuildError says how to install it."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise BuildError(f"{name} is missing: {_INSTALL_HINT[name]}")
    return found


def _check_modules() -> None:
    """Names a Python module that the code generators need and that this interpreter lacks."""
    needed = {"yaml": "pyyaml", "typing_extensions": "typing_extensions"}
    if sys.version_info < (3, 11):
        needed["tomli"] = "tomli"
    for module, project in needed.items():
        if importlib.util.find_spec(module) is None:
            raise BuildError(f"no module named {module}: pip install {project}, then make clean")


def compiler() -> str:
    """The C++ compiler that CXX names, else the first one found."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")):
        if found := shutil.which(name):
            return found
    raise BuildError(f"a C++ compiler is missing: {_INSTALL_HINT['c++']}")


def library_dir(switches: Switches, sanitize: str = "") -> Path:
    """Where the built libraries lie, laid out as in site-packages."""
    variant = f"sanitize-{sanitize.replace(',', '-')}" if sanitize else switches.variant()
    return build_dir() / variant / "lib"


def configure(
    switches: Switches, base_torch: Path, sanitize: str = "", gtest: Path | None = None, toolchain: Path | None = None
) -> Path:
    """Configures the build if its settings are new and returns its folder; raises BuildError when CMake fails."""
    _check_modules()
    libraries = library_dir(switches, sanitize)
    folder = libraries.parent / "cmake"
    settings = {
        "CMAKE_MAKE_PROGRAM": find_tool("ninja"),
        **({"CMAKE_TOOLCHAIN_FILE": toolchain} if toolchain else {"CMAKE_CXX_COMPILER": compiler()}),
        "NPU_BASE_TORCH": base_torch,
        "NPU_OUTPUT_DIR": libraries,
        "NPU_PYTHON": sys.executable,
        "NPU_DEBUG": "ON" if switches["DEBUG"] else "OFF",
        "NPU_SANITIZE": sanitize,
    }
    if gtest:  # otherwise what is known stays, so that a build after the tests need not configure anew
        settings["NPU_GTEST"] = gtest
    command = [find_tool("cmake"), "-G", "Ninja", "-S", str(ROOT), "-B", str(folder), "--log-level=WARNING"]
    command += [f"-D{name}={value}" for name, value in settings.items()]
    stamp = folder / "configured.txt"
    known = set(stamp.read_text().splitlines()) if stamp.exists() else set()
    if not (folder / "build.ninja").exists() or not known.issuperset(command):
        folder.mkdir(parents=True, exist_ok=True)
        _run(command, "CMake could not configure the build")
        stamp.write_text("\n".join(command))
    return folder


def build_native(
    switches: Switches,
    base_torch: Path,
    sanitize: str = "",
    gtest: Path | None = None,
    targets: Sequence[str] = (),
    toolchain: Path | None = None,
) -> Path:
    """Builds what changed and returns `library_dir`; raises BuildError when the compiler fails.

    `sanitize` is a list for -fsanitize=, which has a build of its own; `gtest` are GoogleTest's sources, which targets
    of the C++ tests need; `toolchain` is a CMake toolchain file, for another machine than this one.
    """
    folder = configure(switches, base_torch, sanitize, gtest, toolchain)
    ninja = [find_tool("ninja"), "-C", str(folder), f"-j{switches.max_jobs}", "-k0", *targets]
    _run(ninja, "the native build failed", progress.run)
    return library_dir(switches, sanitize)


def _plain(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode


def _run(command: list[str], failure: str, quietly: Callable[[list[str]], int] = _plain) -> None:
    """Runs a tool; where output is not a terminal, by `quietly`."""
    run = _plain if sys.stdout.isatty() else quietly
    if run(command) != 0:
        raise BuildError(f"{failure}: {' '.join(command[:1] + command[-3:])}")
