# What the porting tool's tests share: the tool's package, conversion of a text, a run of the command.
"""Helpers of the porting tool's tests."""

import importlib
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
SCRIPT = os.path.join(ROOT, "tools", "ms_fmk_transplt", "ms_fmk_transplt.py")
sys.path.insert(0, os.path.dirname(SCRIPT))


def tool(module: str):
    """A module of the porting tool, such as ``tool("convert")``."""
    return importlib.import_module(f"transplant.{module}")


def convert(text, **options):
    """Convert a text (str or bytes); returns the new text of the same type and the report."""
    raw = text.encode("utf-8") if isinstance(text, str) else text
    converter = tool("convert").Converter(tool("unit").Options(**options))
    new, report = converter.convert(raw, "script.py")
    return (new.decode("utf-8") if isinstance(text, str) else new), report


class TransplantCase(unittest.TestCase):
    """A scratch folder per test, and the command as a process."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, content):
        """Write a file below the scratch folder; returns its path."""
        path = self.path(*name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
        return path

    def read(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return file.read().decode("utf-8")

    def run_tool(self, *args, cwd=None):
        """Run the command; returns the finished process (text output)."""
        command = [sys.executable, SCRIPT, *args]
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        return subprocess.run(
            command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120, check=False
        )
