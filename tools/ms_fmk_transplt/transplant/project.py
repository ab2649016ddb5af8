# A file or a whole tree: walking it, writing the result beside the log and the spreadsheet. Sources are only read;
# trouble with one file is that file's report and never stops the others.
"""Conversion of files and folders."""

import contextlib
import os
import shutil
import stat
import time
from dataclasses import dataclass, field

from . import distributed, notebook, report
from .convert import Converter
from .records import FileReport, Hint

SUFFIX = "_msft"
_LEFT_OUT = {".git", ".hg", ".svn", "__pycache__"}
_SHELL_WORDS = {
    b"CUDA_VISIBLE_DEVICES": "CUDA_VISIBLE_DEVICES is ASCEND_RT_VISIBLE_DEVICES on npu",
    b"nccl": "the back end of npu is hccl",
    b"torch.distributed.launch": "torch.distributed.launch works with hccl; torchrun is its successor",
}


class ProjectError(Exception):
    """The conversion cannot begin; the message says why."""


@dataclass
class Result:
    """Reports of all files in order; ``output`` is the result's folder, ``diffs`` those of ``--check``."""

    output: str
    reports: list[FileReport] = field(default_factory=list)
    diffs: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Project:
    """One run of the tool over ``source``, a file or a folder, into ``output/{name}_msft``."""

    def __init__(self, converter: Converter, source: str, output: str | None, main: str | None = None):
        self.converter = converter
        self.source = os.path.abspath(source)
        if not os.path.exists(self.source):
            raise ProjectError(f"input {source} does not exist")
        self.is_folder = os.path.isdir(self.source)
        self.root = self.source if self.is_folder else os.path.dirname(self.source)
        stem = os.path.basename(self.source)
        if not self.is_folder:
            stem = os.path.splitext(stem)[0]
        if not stem:
            raise ProjectError("the root of a file system cannot be converted")
        self.target = os.path.join(os.path.abspath(output), stem + SUFFIX) if output else ""
        self.main = self._find_main(main)

    def _find_main(self, main: str | None) -> str | None:
        if main is None:
            return None
        candidates = [os.path.join(self.root, main), main] if self.is_folder else [self.source]
        for candidate in candidates:
            path = os.path.relpath(os.path.realpath(candidate), os.path.realpath(self.root))
            if os.path.isfile(candidate) and not path.startswith(os.pardir):
                return path
        raise ProjectError(f"main file {main} is not in {self.source}")

    def run(self, check: bool = False, force: bool = False, progress=None) -> Result:
        """Convert everything.

        Args:
            check: write nothing; collect diffs instead.
            force: write into an existing result folder.
            progress: called with (files done, files in all, path) before each file.
        """
        began = time.monotonic()
        result = Result(self.target)
        if not check:
            self._prepare(force)
        files = list(self._files(result))
        for done, (path, relative) in enumerate(files):
            if progress:
                progress(done, len(files), relative)
            self._file(path, relative, check, result)
        if progress:
            progress(len(files), len(files), "")
        result.seconds = time.monotonic() - began
        if not check:
            self._finish(result)
        return result

    def _prepare(self, force: bool) -> None:
        if os.path.lexists(self.target) and not (force and os.path.isdir(self.target)):
            if not force:
                raise ProjectError(f"{self.target} exists; --force overwrites it")
            raise ProjectError(f"{self.target} is not a folder")
        inner = os.path.realpath(self.source)
        if os.path.realpath(self.target) == inner:
            raise ProjectError("the result would overwrite its source")
        try:
            os.makedirs(self.target, exist_ok=True)
        except OSError as error:
            raise ProjectError(f"cannot make {self.target}: {error.strerror}") from error

    # Walking

    def _files(self, result: Result):
        if not self.is_folder:
            yield self.source, os.path.basename(self.source)
            return
        yield from self._folder(self.source, "", {os.path.realpath(self.source)}, result)

    def _folder(self, folder: str, relative: str, above: set[str], result: Result):
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            result.reports.append(FileReport(relative or ".", "failed", f"cannot be read: {error.strerror}"))
            return
        folders = []
        for entry in entries:
            path = os.path.join(relative, entry.name)
            try:
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError as error:  # a link to itself
                result.reports.append(FileReport(path, "skipped", f"cannot be read: {error.strerror}"))
                continue
            if self.target and os.path.realpath(entry.path) == os.path.realpath(self.target):
                result.notes.append(f"{path} is where the result goes; not read")
            elif is_folder and entry.name in _LEFT_OUT:
                result.notes.append(f"{path} is left out")
            elif is_folder:
                real = os.path.realpath(entry.path)
                if real in above:
                    result.reports.append(FileReport(path, "skipped", "a link back to a folder above it"))
                else:
                    folders.append((entry.path, path, real))
            elif is_file:
                yield entry.path, path
            else:
                what = "a dangling link" if entry.is_symlink() else "neither a file nor a folder"
                result.reports.append(FileReport(path, "skipped", what))
        for path, inside, real in folders:
            yield from self._folder(path, inside, above | {real}, result)

    # One file

    def _file(self, path: str, relative: str, check: bool, result: Result) -> None:
        try:
            with open(path, "rb") as file:
                head = file.read(128)
                suffix = os.path.splitext(path)[1].lower()
                is_python = suffix in (".py", ".pyw") or _has_python_shebang(suffix, head)
                is_python = is_python or path == self.source and suffix != ".ipynb"
                raw = head + file.read() if is_python or suffix in (".ipynb", ".sh", ".bash") else None
            new, record = self._convert(relative, suffix, is_python, raw)
        except OSError as error:
            result.reports.append(FileReport(relative, "failed", f"cannot be read: {error.strerror}"))
            return
        except Exception as error:  # a defect of the tool: this file's report, and the rest goes on
            new, record = None, FileReport(relative, "failed", f"internal error: {type(error).__name__}: {error}")
        result.reports.append(record)
        if check:
            if record.status == "converted" and raw is not None and new is not None:
                result.diffs.append((relative, raw, new))
            return
        try:
            self._write(path, relative, new if record.status == "converted" else None)
        except OSError as error:
            record.status, record.reason = "failed", f"cannot be written: {error.strerror}"
            _remove_half(os.path.join(self.target, relative), path)

    def _convert(
        self, relative: str, suffix: str, is_python: bool, raw: bytes | None
    ) -> tuple[bytes | None, FileReport]:
        if is_python and raw is not None:
            return self.converter.convert(raw, relative, relative == self.main)
        if suffix == ".ipynb" and raw is not None:
            return notebook.convert(self.converter, raw, relative)
        record = FileReport(relative, "copied")
        if raw is not None:
            for number, line in enumerate(raw.splitlines(), 1):
                record.hints += [Hint(number, "shell", text) for word, text in _SHELL_WORDS.items() if word in line]
        return None, record

    def _write(self, path: str, relative: str, new: bytes | None) -> None:
        target = os.path.join(self.target, relative)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(target) or os.path.exists(target) and os.path.samefile(path, target):
            os.unlink(target)
        if new is None:
            shutil.copyfile(path, target)
        else:
            with open(target, "wb") as file:
                file.write(new)
        os.chmod(target, stat.S_IMODE(os.stat(path).st_mode) | stat.S_IWUSR)

    def _finish(self, result: Result) -> None:
        title = f"ms_fmk_transplt: {os.path.basename(self.source)} -> {os.path.basename(self.target)}"
        if self.main is not None:
            folder, main = os.path.split(self.main)
            launch = os.path.join(folder, distributed.LAUNCH_SCRIPT)
            text = distributed.launch_script(main)
            if self._own_file(launch, lambda path: _write_text(path, text), result):
                os.chmod(os.path.join(self.target, launch), 0o755)
                result.notes.append(f"{launch} starts {main} once per device")
        self._own_file(report.SHEET_NAME, lambda path: report.write_sheet(path, result.reports), result)
        log = report.log_text(title, result.reports, result.notes)
        self._own_file(report.LOG_NAME, lambda path: _write_text(path, log), result)

    def _own_file(self, relative: str, write, result: Result) -> bool:
        """Write a file of the tool's own; one that fails is reported like a file of the project."""
        path = os.path.join(self.target, relative)
        try:
            write(path)
        except OSError as error:
            result.reports.append(FileReport(relative, "failed", f"cannot be written: {error.strerror}"))
            _remove_half(path, "")
            return False
        return True


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def _remove_half(target: str, source: str) -> None:
    """Take away what a failed write has left: half a file looks like a result."""
    with contextlib.suppress(OSError):
        if os.path.isfile(target) and not (source and os.path.samefile(target, source)):
            os.unlink(target)


def _has_python_shebang(suffix: str, head: bytes) -> bool:
    return suffix == "" and head.startswith(b"#!") and b"python" in head.split(b"\n", 1)[0]
