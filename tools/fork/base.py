"""The base tree: the pinned upstream distribution, downloaded once and unpacked once."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tools.setup_helpers.env import BASE_VERSION, PYTHON, ROOT, BuildError, build_dir, parse_flag


def download_dir() -> Path:
    """The cache of downloads; `make clean` leaves it, so that a rebuild needs no network."""
    return Path(os.environ.get("DOWNLOAD_DIR") or ROOT / "build" / "download").resolve()


def check(wheel: Path) -> None:
    """Refuses a wheel not of the pinned version for our Python and machine, and a CUDA build unless USE_NPU=0."""
    if not wheel.is_file():
        raise BuildError(f"--base-wheel {wheel}: no such file")
    try:
        with zipfile.ZipFile(wheel) as archive:
            version = archive.read("torch/version.py").decode()
            names = set(archive.namelist())
    except (zipfile.BadZipFile, KeyError) as error:
        raise BuildError(f"{wheel} is no torch wheel: {error}") from error
    found = re.search(r"^__version__ = '([^']*)'", version, re.MULTILINE)
    if not found or found[1].split("+")[0] != BASE_VERSION:
        raise BuildError(f"{wheel} holds torch {found[1] if found else '?'}; the base is torch {BASE_VERSION}")
    if "+ascend" in found[1]:
        raise BuildError(f"{wheel} is a wheel of this fork; the base is upstream's")
    cuda = re.search(r"^cuda: Optional\[str\] = '", version, re.MULTILINE)
    if cuda and parse_flag("USE_NPU", os.environ.get("USE_NPU", "1")):
        raise BuildError(
            f"{wheel} is a CUDA build; the base is the CPU build. Get torch-{BASE_VERSION}+cpu for "
            f"cp{PYTHON[0]}{PYTHON[1]} and {platform.machine()} from PyTorch's CPU index, as --base-wheel FILE; "
            "or build for a GPU host, without NPU: USE_NPU=0 USE_HCCL=0 USE_CUDA=1"
        )
    suffix = f".cpython-{PYTHON[0]}{PYTHON[1]}-{platform.machine()}-linux-gnu.so"
    if f"torch/_C{suffix}" not in names:
        raise BuildError(f"{wheel} is not for CPython {PYTHON[0]}.{PYTHON[1]} on linux {platform.machine()}")


def base_wheel() -> Path:
    """The base wheel: BASE_WHEEL of the environment (build.sh --base-wheel), a cached one, or a fresh download."""
    given = os.environ.get("BASE_WHEEL")
    if given:
        wheel = Path(given).expanduser().resolve()
        check(wheel)
        return wheel
    cached = sorted(download_dir().glob(f"torch-{BASE_VERSION}*.whl"))
    if cached:
        return cached[0]
    print(f"-- downloading torch=={BASE_VERSION}", flush=True)
    scratch = download_dir() / "partial"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "-d", str(scratch)]
    # An index that has both builds would otherwise offer the CUDA one; one that names no build has only "2.13.0".
    first = subprocess.run([*command, f"torch=={BASE_VERSION}+cpu"], check=False, capture_output=True)
    if first.returncode != 0 and subprocess.run([*command, f"torch=={BASE_VERSION}"], check=False).returncode != 0:
        raise BuildError(f"pip could not download torch=={BASE_VERSION}; pass one as --base-wheel FILE")
    (wheel,) = scratch.glob("*.whl")
    check(wheel)
    place = download_dir() / wheel.name
    wheel.replace(place)
    scratch.rmdir()
    return place


def identity(wheel: Path) -> str:
    """Tells one base wheel from another without reading all of it."""
    digest = hashlib.sha256()
    with open(wheel, "rb") as stream:
        stream.seek(max(0, wheel.stat().st_size - (4 << 20)))  # the central directory holds every file's checksum
        digest.update(stream.read())
    return f"{wheel.name} {wheel.stat().st_size} {digest.hexdigest()}"


def unpack(wheel: Path) -> Path:
    """Unpacks the wheel into build/base unless that very wheel is there; returns the folder, which is never edited."""
    folder = build_dir() / "base"
    stamp = build_dir() / "base.stamp"
    found = identity(wheel)
    if folder.is_dir() and stamp.exists() and stamp.read_text() == found:
        return folder
    print(f"-- unpacking {wheel.name}", flush=True)
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        for entry in archive.infolist():
            if (entry.external_attr >> 16) & 0o111:
                (folder / entry.filename).chmod(0o755)
    stamp.write_text(found)
    return folder


def dist_info(folder: Path) -> Path:
    """The base's own .dist-info folder."""
    (found,) = folder.glob(f"torch-{BASE_VERSION}*.dist-info")
    return found
