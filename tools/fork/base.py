"""The base tree: the pinned upstream distribution, downloaded once and unpacked once."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tools.setup_helpers.env import (
    BASE_VERSION,
    PYTHON,
    ROOT,
    BuildError,
    build_dir,
    extension_suffix,
    machine,
    parse_flag,
    python_tag,
)


def download_dir() -> Path:
    """The cache of downloads; `make clean` leaves it, so that a rebuild needs no network."""
    return Path(os.environ.get("DOWNLOAD_DIR") or ROOT / "build" / "download").resolve()


def _cuda_refusal(name: object) -> BuildError:
    return BuildError(
        f"{name} is a CUDA build; the base is the CPU build. Get torch-{BASE_VERSION}+cpu for "
        f"{python_tag()} and {machine()} from PyTorch's CPU index, as --base-wheel FILE; "
        "or build for a GPU host, without NPU: USE_NPU=0 USE_HCCL=0 USE_CUDA=1"
    )


def _cuda_will_do() -> bool:
    return not parse_flag("USE_NPU", os.environ.get("USE_NPU", "1"))


def is_cuda(wheel: Path) -> bool:
    """Whether a torch wheel was built with CUDA, whose libraries it then needs; BuildError where it is none."""
    return re.search(r"^cuda: Optional\[str\] = '", _version_file(wheel), re.MULTILINE) is not None


def _version_file(wheel: Path) -> str:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read("torch/version.py").decode()
    except (zipfile.BadZipFile, KeyError) as error:
        raise BuildError(f"{wheel} is no torch wheel: {error}") from error


def check(wheel: Path, cuda: bool = False) -> None:
    """Refuses a wheel not of our version, Python and machine, and a CUDA build unless `cuda` or USE_NPU=0."""
    if not wheel.is_file():
        raise BuildError(f"--base-wheel {wheel}: no such file")
    found = re.search(r"^__version__ = '([^']*)'", _version_file(wheel), re.MULTILINE)
    if not found or found[1].split("+")[0] != BASE_VERSION:
        raise BuildError(f"{wheel} holds torch {found[1] if found else '?'}; the base is torch {BASE_VERSION}")
    if "+ascend" in found[1]:
        raise BuildError(f"{wheel} is a wheel of this fork; the base is upstream's")
    if is_cuda(wheel) and not (cuda or _cuda_will_do()):
        raise _cuda_refusal(wheel)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    if f"torch/_C{extension_suffix()}" not in names:
        raise BuildError(
            f"{wheel} is not for CPython {PYTHON[0]}.{PYTHON[1]} on linux {machine()}: pass one whose name "
            f"has {python_tag()}-{python_tag()} and {machine()} as --base-wheel FILE, or choose its Python by --python"
        )


def cached(folder: Path) -> Path | None:
    """The base wheel for our Python and machine that lies in a folder of downloads."""
    tag = python_tag()
    return next(iter(sorted(folder.glob(f"torch-{BASE_VERSION}*-{tag}-{tag}-*_{machine()}.whl"))), None)


def base_wheel() -> Path:
    """The base wheel: BASE_WHEEL of the environment (build.sh --base-wheel), a cached one, or a fresh download."""
    given = os.environ.get("BASE_WHEEL")
    if given:
        wheel = Path(given).expanduser().resolve()
        check(wheel)
        return wheel
    if found := cached(download_dir()):
        return found
    print(f"-- downloading torch=={BASE_VERSION}", flush=True)
    # An index that has both builds would otherwise offer the CUDA one; one that names no build has only "2.13.0".
    wheel = _download(f"torch=={BASE_VERSION}+cpu") or _download_unless_cuda(f"torch=={BASE_VERSION}")
    check(wheel)
    place = download_dir() / wheel.name
    wheel.replace(place)
    wheel.parent.rmdir()
    return place


def _download(requirement: str) -> Path | None:
    """What pip gets for this interpreter, in a folder of its own; None where there is no such wheel."""
    scratch = download_dir() / "partial"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary=:all:", "-d", str(scratch)]
    subprocess.run([*command, requirement], check=False, capture_output=True)
    return next(scratch.glob("*.whl"), None)


def _download_unless_cuda(requirement: str) -> Path:
    # What pip would take is asked for first: its requirements tell a CUDA build before half a gigabyte is fetched.
    command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed", "--no-deps"]
    command += ["--only-binary=:all:", "--report", "-", requirement]
    asked = subprocess.run(command, check=False, capture_output=True, text=True)
    if asked.returncode == 0:
        item = json.loads(asked.stdout)["install"][0]
        needs = item["metadata"].get("requires_dist", [])
        if any(need.startswith(("nvidia-", "cuda-")) for need in needs) and not _cuda_will_do():
            raise _cuda_refusal(item["download_info"]["url"].rsplit("/", 1)[-1] + ", which pip would take,")
        if wheel := _download(requirement):
            return wheel
    raise BuildError(
        f"pip has no {requirement} for CPython {PYTHON[0]}.{PYTHON[1]} on {machine()}; pass the CPU build, "
        f"torch-{BASE_VERSION}+cpu for {python_tag()} and {machine()}, as --base-wheel FILE"
    )


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
