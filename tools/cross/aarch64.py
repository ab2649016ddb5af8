"""What tools/cross/aarch64.sh runs: a build for aarch64 by Debian's cross compiler, checked under qemu-user.

    bash tools/cross/aarch64.sh                        the libraries, laid out as in the wheel, and their C++ tests
    bash tools/cross/aarch64.sh --base-wheel FILE      the same on FILE; the whole wheel, where FILE is a CPU build
    bash tools/cross/aarch64.sh --no-tests             the build alone
    bash tools/cross/aarch64.sh --gtest-filter='Ops.*' some tests

Upstream's aarch64 wheel gives headers and the libraries that ours are linked with. The one that pip finds is a CUDA
build: it serves for building, for the layout and for the C++ tests, but no wheel is made of it. The Python headers are
this host's, of the same version; the sizes in their pyconfig.h are checked against the cross compiler.
"""

import argparse
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

from tools.cross import elf
from tools.fork import base, metadata, overlay, wheel
from tools.setup_helpers import check_native, cmake
from tools.setup_helpers.env import BASE_VERSION, PYTHON, ROOT, BuildError, Switches, build_dir, dist_dir

TOOLCHAIN = ROOT / "tools/cross/aarch64.cmake"
COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
SYSROOT = Path("/usr/aarch64-linux-gnu")
# The newest glibc that upstream's wheels may need, and what NVIDIA's packages were made for.
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_25", "manylinux_2_17", "manylinux2014")
_HINT = "apt install g++-aarch64-linux-gnu qemu-user"


def say(text: str) -> None:
    """Prints a stage of the work."""
    print(f"== {text}", flush=True)


def pip_download(requirement: str, folder: Path, deps: bool = False) -> None:
    """Puts wheels for aarch64 into a folder; BuildError where pip has none."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-qq", "-d", str(folder), "--only-binary=:all:"]
    command += [f"--platform={name}_aarch64" for name in _PLATFORMS]
    command += [f"--python-version={PYTHON[0]}.{PYTHON[1]}", *([] if deps else ["--no-deps"]), requirement]
    if subprocess.run(command, check=False).returncode != 0:
        raise BuildError(f"pip could not download {requirement} for aarch64; pass a base wheel as --base-wheel FILE")


def base_wheel(given: str | None) -> Path:
    """The base wheel for aarch64: the given one, a cached one or a fresh download (430 MB)."""
    if given:
        found = Path(given).expanduser().resolve()
    else:
        if not base.cached(base.download_dir()):
            say(f"downloading torch=={BASE_VERSION} for aarch64")
            pip_download(f"torch=={BASE_VERSION}", base.download_dir())
        cached = base.cached(base.download_dir())
        if not cached:
            raise BuildError(f"no torch {BASE_VERSION} for aarch64 in {base.download_dir()}")
        found = cached
    base.check(found, cuda=True)
    return found


def add_cuda_libraries(tree: Path, sysroot: Path) -> None:
    """Lays CUDA's run time where the base's libraries look for it, if libtorch_cpu.so of this base needs it."""
    missing = elf.missing(tree / "torch/lib/libtorch_cpu.so", [tree / "torch/lib", tree / "nvidia/cu13/lib", sysroot])
    if not missing:
        return
    needs = (base.dist_info(tree) / "METADATA").read_text(encoding="utf-8")
    pinned = re.search(r"^Requires-Dist: cuda-toolkit\[[^]]*\](==[^;\s]+)", needs, re.MULTILINE)
    if not pinned:
        raise BuildError(f"{', '.join(sorted(missing))}: needed by libtorch_cpu.so of the base wheel, and not in it")
    say(f"{', '.join(sorted(missing))}: from CUDA's packages, since this base is linked with them")
    folder = build_dir() / "cuda"
    if not list(folder.glob("nvidia_*.whl")):
        pip_download(f"cuda-toolkit[cudart,cupti]{pinned[1]}", folder, deps=True)
    for package in folder.glob("nvidia_*.whl"):
        with zipfile.ZipFile(package) as archive:
            archive.extractall(tree, [name for name in archive.namelist() if re.search(r"/lib/[^/]*\.so", name)])


def check_python_headers(scratch: Path) -> None:
    """Compiles Python.h for aarch64, with every size that this host's pyconfig.h states; BuildError if one is wrong."""
    include = Path(sysconfig.get_path("include"))
    stated = dict(
        re.findall(r"^#define SIZEOF_(\w+) (\d+)", Path(sysconfig.get_config_h_filename()).read_text(), re.MULTILINE)
    )
    types = {
        "INT": "int", "LONG": "long", "LONG_LONG": "long long", "SHORT": "short", "FLOAT": "float", "DOUBLE": "double",
        "LONG_DOUBLE": "long double", "VOID_P": "void*", "SIZE_T": "size_t", "OFF_T": "off_t", "TIME_T": "time_t",
        "PID_T": "pid_t", "WCHAR_T": "wchar_t", "UINTPTR_T": "uintptr_t", "_BOOL": "bool", "FPOS_T": "fpos_t",
        "PTHREAD_T": "pthread_t",
    }  # fmt: skip
    lines = ["#include <Python.h>", "#include <pthread.h>", "#include <sys/types.h>"]
    lines += [
        f'static_assert(sizeof({types[name]}) == {size}, "{name}");' for name, size in stated.items() if name in types
    ]
    source = scratch / "python_sizes.cpp"
    source.write_text("\n".join(lines) + "\n")
    done = subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", f"-I{include}", str(source)], check=False)
    if done.returncode != 0:
        raise BuildError(f"{include}: these headers are not usable for aarch64 (see above)")


def lay_out(switches: Switches, tree: Path, libraries: Path, folder: Path) -> int:
    """Writes what the wheel adds to its base into a folder, as in site-packages; returns how many files."""
    shutil.rmtree(folder, ignore_errors=True)
    files = overlay.collect(switches, tree, libraries)
    files |= metadata.own_metadata(base.dist_info(tree), switches, "", "wheel")
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(metadata.read_bytes(content))
    return len(files)


def check_libraries(layout: Path, tree: Path, sysroot: Path) -> int:
    """BuildError unless each library is aarch64's and finds every symbol that it needs; returns how many there are."""
    ours = sorted(layout.rglob("*.so"))
    for path in ours:
        if elf.machine(path) != "AArch64":
            raise BuildError(f"{path} is a library for {elf.machine(path)}")
    beside = [
        layout / "torch/lib",
        layout / "torch/lib/ascend_sim",
        tree / "torch/lib",
        tree / "nvidia/cu13/lib",
        sysroot,
    ]
    for path in ours:
        # Python's symbols are the interpreter's, which has no library to look into.
        absent = {name for name in elf.unresolved(path, beside) if not re.match(r"_?Py", name)}
        if absent:
            raise BuildError(f"{path} needs what no library has: {', '.join(sorted(absent)[:5])}")
    return len(ours)


def run_tests(programs: list[Path], gtest_filter: str) -> bool:
    """Runs GoogleTest programs under emulation, where this host is of another kind."""
    emulate = [] if platform.machine() == "aarch64" else [EMULATOR, "-L", str(SYSROOT)]
    flags = ["--gtest_brief=1", *([f"--gtest_filter={gtest_filter}"] if gtest_filter else [])]
    good = True
    for program in programs:
        began = time.monotonic()
        say(program.name)
        status = subprocess.run([*emulate, str(program), *flags], check=False).returncode
        say(f"{program.name}: {'passed' if status == 0 else f'FAILED ({status})'} in {time.monotonic() - began:.0f} s")
        good &= status == 0
    return good


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="aarch64.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", metavar="VERSION", help="the Python to build for, 3.11 if not said")
    parser.add_argument("--base-wheel", metavar="FILE", help="upstream's wheel for aarch64; else pip downloads it once")
    parser.add_argument("--no-tests", action="store_true", help="build and lay out only")
    parser.add_argument("--gtest-filter", default="", metavar="PATTERN", help="which of the C++ tests")
    options = parser.parse_args(arguments)
    for tool in (COMPILER, *([] if options.no_tests else [EMULATOR])):
        if not shutil.which(tool):
            raise BuildError(f"{tool} is missing: {_HINT}")
    switches = Switches.read()
    source = base_wheel(options.base_wheel)
    cuda = base.is_cuda(source)
    tree = base.unpack(source)
    sysroot = SYSROOT / "lib"
    add_cuda_libraries(tree, sysroot)
    check_python_headers(build_dir())

    say(f"compiling for aarch64 ({switches.variant()}, {switches.max_jobs} jobs)")
    targets = ["all"] if options.no_tests else ["all", "cpp_tests"]
    gtest = None if options.no_tests else check_native.googletest()
    libraries = cmake.build_native(switches, tree / "torch", gtest=gtest, targets=targets, toolchain=TOOLCHAIN)
    layout = build_dir() / "layout"
    files = lay_out(switches, tree, libraries, layout)
    count = check_libraries(layout, tree, sysroot)
    say(f"{layout}: {files} files as the wheel adds them, {count} libraries for aarch64 with all their symbols")

    good = options.no_tests or run_tests(sorted((libraries.parent / "bin").glob("*_test")), options.gtest_filter)
    if cuda:
        say(
            f"{source.name} is a CUDA build: no wheel is made of it, and its `import torch` needs CUDA's libraries, so "
            "no Python was run. Pass the CPU build for aarch64 as --base-wheel FILE to get the wheel."
        )
    else:
        say(f"the wheel: {wheel.write(switches, tree, libraries, dist_dir())}")
    say("aarch64: " + ("built" if options.no_tests else "built, and the C++ tests passed" if good else "FAILED"))
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BuildError as error:
        sys.exit(f"error: {error}")
