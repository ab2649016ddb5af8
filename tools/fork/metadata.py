"""The distribution's own records: METADATA, WHEEL, RECORD and the note that says how it was built."""

import base64
import hashlib
import json
from pathlib import Path

from tools.fork.overlay import Content, extra_packages
from tools.setup_helpers.env import BASE_VERSION, VERSION, Switches, wheel_tag

DIST_INFO = f"torch-{VERSION}.dist-info"
BUILD_NOTE = f"{DIST_INFO}/ascend_build.json"
# The name under which libraries of the plug-in era look for this back end is a distribution of its own, so that
# importlib.metadata and pip know it. A wheel has one .dist-info at its top: this one goes where its data go.
ALIAS = "torch_npu"
ALIAS_INFO = f"{ALIAS}-{VERSION}.dist-info"
PART_OF_TORCH = "part_of_torch"  # the file by which torch/_npu_autoload.py tells it from the plug-in's
WHEEL_DATA = f"torch-{VERSION}.data/platlib"
# What the optional tools import; a plain installation goes without.
NPU_TOOLS = ("h5py", "libcst", "openpyxl", "rich", "matplotlib")
# Commands of the NPU back end, beside the base's own.
NPU_COMMANDS = {
    "ms_fmk_transplt": "torch.tools.ms_fmk_transplt.transplant.cli:main",
    "msprof": "torch.npu._profile.msprof:main",
}


def read_bytes(content: Content) -> bytes:
    """The bytes of a content, wherever it lies."""
    return content if isinstance(content, bytes) else content.read_bytes()


def record_hash(data: bytes) -> str:
    """A file's hash as RECORD spells it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def digest(files: dict[str, Content], base_identity: str) -> str:
    """One hash over everything that goes into the wheel; equal digests mean equal wheels."""
    total = hashlib.sha256(base_identity.encode())
    for name, content in sorted(files.items()):
        total.update(f"\0{name}\0".encode())
        total.update(hashlib.sha256(read_bytes(content)).digest())
    return total.hexdigest()


def entry_points(base_info: Path, switches: Switches) -> str:
    """The base's entry_points.txt with our commands among its console scripts."""
    text = (base_info / "entry_points.txt").read_text(encoding="utf-8")
    if not switches["USE_NPU"]:
        return text
    commands = "".join(f"{name} = {target}\n" for name, target in NPU_COMMANDS.items())
    return text.replace("[console_scripts]\n", "[console_scripts]\n" + commands, 1)


def alias_metadata() -> dict[str, bytes]:
    """The .dist-info of the distribution that stands for the package `torch_npu`, by its place in site-packages.

    Its RECORD lists itself alone: the package is torch's, which lists this folder, too, and removes both.
    """
    metadata = f"""Metadata-Version: 2.1
Name: {ALIAS}
Version: {VERSION}
Summary: The import name torch_npu of this torch's npu back end: part of the torch wheel, not the plug-in
Requires-Dist: torch=={VERSION}
"""
    wheel = f"Wheel-Version: 1.0\nGenerator: torch-ascend ({VERSION})\nRoot-Is-Purelib: false\nTag: {wheel_tag()}\n"
    files = {
        f"{ALIAS_INFO}/METADATA": metadata.encode(),
        f"{ALIAS_INFO}/WHEEL": wheel.encode(),
        f"{ALIAS_INFO}/INSTALLER": b"pip\n",
        f"{ALIAS_INFO}/{PART_OF_TORCH}": b"",
    }
    rows = [f"{name},{record_hash(data)},{len(data)}" for name, data in files.items()]
    files[f"{ALIAS_INFO}/RECORD"] = "\n".join([*rows, f"{ALIAS_INFO}/RECORD,,", ""]).encode()
    return files


def place_in_wheel(name: str) -> str:
    """Where a file of site-packages lies in the wheel."""
    return f"{WHEEL_DATA}/{name}" if name.startswith(f"{ALIAS_INFO}/") else name


def own_metadata(base_info: Path, switches: Switches, build_digest: str, mode: str) -> dict[str, bytes]:
    """The files of our .dist-info that differ from the base's, without RECORD."""
    metadata = (base_info / "METADATA").read_text(encoding="utf-8")
    head, blank, body = metadata.partition("\n\n")
    lines = []
    for line in head.split("\n"):
        if line.startswith("Version: "):
            line = f"Version: {VERSION}"
        lines.append(line)
    lines.append("Provides-Extra: npu-tools")
    lines += [f'Requires-Dist: {name}; extra == "npu-tools"' for name in NPU_TOOLS]
    wheel = f"""Wheel-Version: 1.0
Generator: torch-ascend ({VERSION})
Root-Is-Purelib: false
Tag: {wheel_tag()}
"""
    top_level = (base_info / "top_level.txt").read_text().split()
    if switches["USE_NPU"]:
        top_level += extra_packages()
    note = {"base": BASE_VERSION, "digest": build_digest, "mode": mode, "switches": switches.own}
    return (alias_metadata() if switches["USE_NPU"] else {}) | {
        f"{DIST_INFO}/METADATA": ("\n".join(lines) + blank + body).encode(),
        f"{DIST_INFO}/WHEEL": wheel.encode(),
        f"{DIST_INFO}/entry_points.txt": entry_points(base_info, switches).encode(),
        f"{DIST_INFO}/top_level.txt": ("\n".join(sorted(top_level)) + "\n").encode(),
        BUILD_NOTE: (json.dumps(note, indent=1, sort_keys=True) + "\n").encode(),
    }
