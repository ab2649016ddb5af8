"""Builds the C++ tests, runs them, and runs a shard of the Python tests on the same libraries.

    bash build.sh check-native                              as the build made them
    SANITIZE=thread bash build.sh check-native              with ThreadSanitizer
    SANITIZE=address,undefined bash build.sh check-native   with AddressSanitizer and UndefinedBehaviorSanitizer

A sanitized build covers the device layer (libc10_npu) and the simulator; kernels and bindings are taken as they are.
Arguments choose C++ tests, in the form of --gtest_filter.
"""

import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tools.fork import base
from tools.setup_helpers import cmake
from tools.setup_helpers.env import ROOT, BuildError, Switches

SANITIZERS = ("", "thread", "address,undefined", "address", "undefined")
# Quick files that work the device layer and the simulator hard.
PYTHON_SHARD = (
    "test_allocator.py",
    "test_compile_cache.py",
    "test_copy.py",
    "test_layout.py",
    "test_simulator_memory.py",
    "test_simulator_streams.py",
    "test_streams_events.py",
)
_RUNTIME = {"thread": "libtsan.so", "address": "libasan.so", "undefined": "libubsan.so"}


def googletest() -> Path:
    """GoogleTest's sources: the pinned package's, else the system's; BuildError where there are none."""
    for folder in (Path(sysconfig.get_path("data"), "src/gtest_vendor"), Path("/usr/src/googletest/googletest")):
        if (folder / "src/gtest-all.cc").is_file():
            return folder
    raise BuildError("GoogleTest is missing: pip install -r requirements-dev.txt")


def runtime_options(sanitize: str) -> dict[str, str]:
    """Variables that make a report an error, and leave out what is not ours."""
    suppressions = ROOT / "tools/sanitizers"
    options = {
        # Upstream's libraries and libgomp are not instrumented: what their threads hand over to each other would look
        # like races of ours. So OpenMP has one thread; ours are as many as ever.
        "OMP_NUM_THREADS": "1",
        "ASCEND_SIM_THREADS": "1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    if "thread" in sanitize:
        options["TSAN_OPTIONS"] = f"suppressions={suppressions / 'thread.txt'}:second_deadlock_stack=1:halt_on_error=1"
    if "address" in sanitize:
        # Python and upstream keep much until the end of the process.
        options["ASAN_OPTIONS"] = "detect_leaks=0:detect_stack_use_after_return=1:allocator_may_return_null=1"
    return options


def _preload(sanitize: str) -> str:
    """The sanitizers' run-time libraries, which an interpreter that is not sanitized has to load first."""
    compiler = cmake.compiler()
    found = []
    for name in sanitize.split(","):
        path = subprocess.run(
            [compiler, f"-print-file-name={_RUNTIME[name]}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        if "/" not in path:
            raise BuildError(f"{_RUNTIME[name]} of {compiler} is missing: install the compiler's sanitizers")
        found.append(path)
    return " ".join(found)


def _run(what: str, command: Sequence[str], environment: dict[str, str], sanitize: str) -> bool:
    print(f"== {what}", flush=True)
    if "thread" in sanitize:
        # ThreadSanitizer needs the usual places of memory, which random addresses may miss.
        command = ["setarch", platform.machine(), "-R", *command]
    status = subprocess.run(command, env={**os.environ, **environment}, check=False).returncode
    if status != 0:
        print(f"== {what}: failed ({status})", flush=True)
    return status == 0


def main(arguments: list[str]) -> int:
    sanitize = os.environ.get("SANITIZE", "")
    if sanitize not in SANITIZERS:
        raise BuildError(f"SANITIZE={sanitize}: expected one of {', '.join(SANITIZERS[1:])}, or nothing")
    switches = Switches.read()
    tree = base.unpack(base.base_wheel()) / "torch"
    targets = ["device_tests"] if sanitize else ["cpp_tests"]
    libraries = cmake.build_native(switches, tree, sanitize=sanitize, gtest=googletest(), targets=targets)
    options = runtime_options(sanitize) if sanitize else {}
    tests = sorted((libraries.parent / "bin").glob("*_test"))
    flags = [f"--gtest_filter={arguments[0]}"] if arguments else []
    good = [_run(test.name, [str(test), "--gtest_brief=1", *flags], options, sanitize) for test in tests]
    if not arguments:
        environment = dict(options)
        for name in environment.keys() & {"TSAN_OPTIONS", "ASAN_OPTIONS"}:
            # A test lets a process crash, and looks how it ended.
            environment[name] += ":handle_segv=0"
        if "thread" in sanitize:
            # A mutex that libtorch_cpu takes and our code gives back would look as if nobody had taken it.
            environment["TSAN_OPTIONS"] += ":report_mutex_bugs=0"
        if sanitize:
            environment["LD_PRELOAD"] = _preload(sanitize)
            # Upstream's libraries are where torch is installed.
            installed = Path(sysconfig.get_path("purelib"), "torch/lib")
            environment["LD_LIBRARY_PATH"] = f"{libraries / 'torch/lib'}:{installed}"
            environment["ACL_LIBRARY"] = str(libraries / "torch/lib/ascend_sim/libascendcl.so")
        files = [str(ROOT / "test/test_npu" / name) for name in PYTHON_SHARD]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
        good.append(_run("a shard of the Python tests", command, environment, sanitize))
    print("== check-native: " + ("no report" if all(good) else "FAILED"), flush=True)
    return 0 if all(good) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BuildError as error:
        sys.exit(f"error: {error}")
