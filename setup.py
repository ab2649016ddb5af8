"""Entry point of the build: `python setup.py build | bdist_wheel | develop | clean`, with switches in the environment.

    DEBUG USE_NPU USE_HCCL USE_DUMP USE_DISTRIBUTED BUILD_TEST MAX_JOBS       change what is built
    USE_CUDA USE_NCCL USE_MKLDNN USE_NNPACK USE_XNNPACK BUILD_BREAKPAD        accepted; the base wheel has settled them
    BASE_WHEEL                                                                the base wheel, instead of a download

The work is in tools/setup_helpers (switches, CMake) and tools/fork (base tree, overlay, grafts, wheel).
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

try:
    from setuptools import Command, setup
except ImportError:
    sys.exit("setuptools is missing: pip install -r requirements-build.txt")

from tools.setup_helpers.env import NEWEST_PYTHON, OLDEST_PYTHON, PYTHON, VERSION, BuildError, Switches, dist_dir  # noqa: E402

if not OLDEST_PYTHON <= PYTHON <= NEWEST_PYTHON:
    sys.exit(
        f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} to {NEWEST_PYTHON[0]}.{NEWEST_PYTHON[1]} is needed, for which "
        f"upstream makes base wheels; this is {sys.version.split()[0]}"
    )


class _Step(Command):
    """A command without options that turns a BuildError into a message."""

    user_options: list = []

    def initialize_options(self):
        self.switches = None

    def finalize_options(self):
        self.switches = Switches.read()

    def run(self):
        try:
            for notice in self.switches.notices if not getattr(self.distribution, "told", False) else ():
                print(f"note: {notice}", flush=True)
            self.distribution.told = True
            self.step()
        except BuildError as error:
            sys.exit(f"error: {error}")


class Build(_Step):
    description = "unpack the base wheel and compile the native half"

    def step(self):
        from tools.fork import base, overlay
        from tools.setup_helpers import cmake

        self.base = base.unpack(base.base_wheel())
        script = ROOT / "tools/msaccucmp/msaccucmp.py"
        script.with_suffix(".pyc").write_bytes(overlay.compiled(script))  # the guides' other spelling
        self.libraries = None
        if self.switches["USE_NPU"]:
            print(f"-- compiling ({self.switches.variant()}, {self.switches.max_jobs} jobs)", flush=True)
            self.libraries = cmake.build_native(self.switches, self.base / "torch")


class BdistWheel(_Step):
    description = "build, then pack the wheel"

    def step(self):
        from tools.fork import wheel

        self.run_command("build")
        built = self.get_finalized_command("build")
        print(f"-- {wheel.write(self.switches, built.base, built.libraries, dist_dir())}", flush=True)


class Develop(_Step):
    description = "build, then lay the fork into this environment"

    def step(self):
        from tools.fork import develop

        self.run_command("build")
        built = self.get_finalized_command("build")
        count = develop.install(self.switches, built.base, built.libraries)
        print(f"-- torch {VERSION} is laid out in {develop.site_packages()} ({count} files of ours)", flush=True)


class Clean(_Step):
    description = "remove what was built; the download cache stays"

    def step(self):
        subprocess.run(["bash", str(ROOT / "build.sh"), "clean"], check=True)


setup(
    name="torch",
    version=VERSION,
    packages=[],
    py_modules=[],
    cmdclass={"build": Build, "bdist_wheel": BdistWheel, "develop": Develop, "clean": Clean},
)
