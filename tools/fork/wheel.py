"""Writes the wheel: upstream's entries are copied as they lie in the base wheel; only our files are compressed anew.

`python -m tools.fork.wheel --stale` prints the wheel in dist/ if this environment does not hold that very build.
"""

import copy
import csv
import io
import json
import re
import struct
import sys
import zipfile
from pathlib import Path

from tools.fork import base as base_tree
from tools.fork.develop import installed_note, site_packages
from tools.fork.metadata import BUILD_NOTE, DIST_INFO, digest, own_metadata, place_in_wheel, read_bytes, record_hash
from tools.fork.overlay import Content, collect
from tools.setup_helpers.env import VERSION, Switches, dist_dir, wheel_tag

_TIME = (2025, 1, 1, 0, 0, 0)  # one time for all entries of ours, so that equal inputs give equal wheels
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


class RawCopyZip(zipfile.ZipFile):
    """A zip being written that can take another zip's entry without touching its compressed bytes."""

    def copy_entry(self, source: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> None:
        """Appends `entry` of `source` under `name`."""
        stream, out = source.fp, self.fp
        assert stream is not None and out is not None, "both are open"
        stream.seek(entry.header_offset)
        header = _LOCAL_HEADER.unpack(stream.read(_LOCAL_HEADER.size))
        stream.seek(header[9] + header[10], 1)  # the local name and extra field, which may differ from the directory's
        new = copy.copy(entry)
        new.filename = new.orig_filename = name
        new.flag_bits &= ~0x08  # the sizes are in the header, no descriptor follows
        new.extra = b""
        out.seek(self.start_dir)
        new.header_offset = out.tell()
        out.write(new.FileHeader(zip64=False))
        left = new.compress_size
        while left:
            block = stream.read(min(left, 8 << 20))
            if not block:
                raise zipfile.BadZipFile(f"{source.filename} ends inside {entry.filename}")
            out.write(block)
            left -= len(block)
        self.filelist.append(new)
        self.NameToInfo[name] = new
        self.start_dir = out.tell()
        self._didModify = True

    def add(self, name: str, data: bytes, executable: bool = False) -> None:
        """Appends a file of ours."""
        entry = zipfile.ZipInfo(name, _TIME)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self.writestr(entry, data)


def wheel_name() -> str:
    """The file name of the one wheel that this build makes."""
    return f"torch-{VERSION}-{wheel_tag()}.whl"


def write(switches: Switches, base: Path, libraries: Path | None, folder: Path) -> Path:
    """Writes the wheel into `folder`, unless the one that is there is made of the same inputs; returns its path."""
    source_path = base_tree.base_wheel()
    base_info = base_tree.dist_info(base)
    files: dict[str, Content] = collect(switches, base, libraries)
    build_digest = digest({**files, **own_metadata(base_info, switches, "", "wheel")}, base_tree.identity(source_path))
    target = folder / wheel_name()
    if (note := _note(target)) and note["digest"] == build_digest:
        return target
    files |= own_metadata(base_info, switches, build_digest, "wheel")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"torch-*-{wheel_tag()}.whl"):  # wheels for other Pythons and machines stay
        old.unlink()
    scratch = target.with_suffix(".partial")
    rows: list[tuple[str, ...]] = []
    with zipfile.ZipFile(source_path) as source, RawCopyZip(scratch, "w") as out:
        old_record = source.read(f"{base_info.name}/RECORD").decode()
        old_rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(old_record))}
        for entry in source.infolist():
            name = re.sub(f"^{re.escape(base_info.name)}/", f"{DIST_INFO}/", entry.filename)
            # Upstream's wheels for some machines list folders, too, which have no row in RECORD.
            if entry.is_dir() or name in files or name == f"{DIST_INFO}/RECORD":
                continue
            out.copy_entry(source, entry, name)
            rows.append((name, *old_rows[entry.filename]))
        # The distribution's records come last, as the format recommends.
        for name, content in sorted(files.items(), key=lambda item: item[0].startswith(DIST_INFO)):
            data = read_bytes(content)
            name = place_in_wheel(name)
            out.add(name, data, executable=name.endswith(".so"))
            rows.append((name, record_hash(data), str(len(data))))
        record = io.StringIO()
        csv.writer(record, lineterminator="\n").writerows([*rows, (f"{DIST_INFO}/RECORD", "", "")])
        out.add(f"{DIST_INFO}/RECORD", record.getvalue().encode())
    scratch.replace(target)
    return target


def _note(wheel: Path) -> dict | None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return json.loads(archive.read(BUILD_NOTE))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def stale(folder: Path, site: Path) -> Path | None:
    """The wheel in `folder` if `site` does not hold that build, else None; FileNotFoundError if there is no wheel."""
    wheel = folder / wheel_name()
    made = _note(wheel)
    if made is None:
        raise FileNotFoundError(wheel)
    return None if installed_note(site) == made else wheel


if __name__ == "__main__":
    if sys.argv[1:] != ["--stale"]:
        sys.exit("usage: python -m tools.fork.wheel --stale")
    try:
        print(stale(dist_dir(), site_packages()) or "")
    except FileNotFoundError as error:
        sys.exit(f"no such wheel: {error}")
