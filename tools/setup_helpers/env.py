"""The build's switches: which are ours, which the base wheel has already decided, and what to say about it."""

import os
import platform
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE_VERSION = "2.13.0"
VERSION = f"{BASE_VERSION}+ascend"
# What is built for: the interpreter that runs the build. Upstream makes wheels of this version for these Pythons.
PYTHON = sys.version_info[:2]
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 14)

# Ours, with the value that holds when the environment does not say.
OWN_SWITCHES = {
    "DEBUG": False,
    "USE_NPU": True,
    "USE_HCCL": True,
    "USE_DUMP": True,
    "USE_DISTRIBUTED": True,
    "BUILD_TEST": False,
}
# Settled when upstream built the base wheel; it records no value for BUILD_BREAKPAD and USE_XNNPACK.
BASE_SWITCHES = {
    "USE_CUDA": False,
    "USE_NCCL": False,
    "USE_MKLDNN": True,
    "USE_NNPACK": True,
    "USE_XNNPACK": True,
    "BUILD_BREAKPAD": False,
}

# What differs in upstream's CUDA wheels, which a build with USE_NPU=0 may take as its base.
CUDA_BASE_SWITCHES = {**BASE_SWITCHES, "USE_CUDA": True, "USE_NCCL": True}

_TRUE = {"1", "ON", "YES", "TRUE", "Y"}
_FALSE = {"0", "OFF", "NO", "FALSE", "N", ""}


class BuildError(Exception):
    """A failure of the build that the user can act on: printed without a traceback."""


def parse_flag(name: str, value: str) -> bool:
    """The truth of a switch's text; raises BuildError for anything but 0/1, ON/OFF, YES/NO, TRUE/FALSE, Y/N."""
    text = value.strip().upper()
    if text not in _TRUE | _FALSE:
        raise BuildError(f"{name}={value}: expected 0 or 1")
    return text in _TRUE


def build_dir() -> Path:
    """Where everything that is made goes; BUILD_DIR in the environment moves it."""
    return Path(os.environ.get("BUILD_DIR") or ROOT / "build").resolve()


def dist_dir() -> Path:
    """Where the wheel goes; DIST_DIR in the environment moves it."""
    return Path(os.environ.get("DIST_DIR") or ROOT / "dist").resolve()


def machine() -> str:
    """The machine that is built for: this one, unless TARGET_MACHINE names another, as tools/cross does."""
    return os.environ.get("TARGET_MACHINE") or platform.machine()


def python_tag(python: tuple[int, int] = PYTHON) -> str:
    """How wheels' names spell a version of CPython."""
    return f"cp{python[0]}{python[1]}"


def wheel_tag(python: tuple[int, int] = PYTHON) -> str:
    """The tag of the one wheel that this build makes."""
    return f"{python_tag(python)}-{python_tag(python)}-linux_{machine()}"


def extension_suffix(python: tuple[int, int] = PYTHON) -> str:
    """How the names of extension modules end."""
    return f".cpython-{python[0]}{python[1]}-{machine()}-linux-gnu.so"


@dataclass(frozen=True)
class Switches:
    """The switches of one build."""

    own: dict[str, bool]
    max_jobs: int
    notices: tuple[str, ...] = ()
    base: dict[str, bool] = field(default_factory=lambda: dict(BASE_SWITCHES))

    @classmethod
    def read(cls, environ=None) -> "Switches":
        """Takes the switches from the environment; BuildError for a malformed value."""
        environ = os.environ if environ is None else environ
        own = {name: parse_flag(name, environ.get(name, str(int(default)))) for name, default in OWN_SWITCHES.items()}
        cuda = re.search(r"\+cu\d", os.path.basename(environ.get("BASE_WHEEL", "")))
        base = CUDA_BASE_SWITCHES if cuda else BASE_SWITCHES
        notices = [
            f"{name}={int(asked)} has no effect: the base wheel was built with {name}={int(settled)}"
            for name, settled in base.items()
            if name in environ and (asked := parse_flag(name, environ[name])) != settled
        ]
        jobs = environ.get("MAX_JOBS", "")
        if jobs and not (jobs.isdigit() and int(jobs) > 0):
            raise BuildError(f"MAX_JOBS={jobs}: expected a positive number")
        return cls(own, int(jobs or os.cpu_count() or 1), tuple(notices), dict(base))

    def __getitem__(self, name: str) -> bool:
        return self.own[name]

    def text(self) -> str:
        """All switches in one line, for `torch.__config__.show()`."""
        return ", ".join(f"{name}={int(value)}" for name, value in {**self.own, **self.base}.items())

    def variant(self) -> str:
        """The name of the folder for objects: each variant of the compile flags has its own, so none is built twice."""
        return "debug" if self["DEBUG"] else "release"
