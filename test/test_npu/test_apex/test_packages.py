"""Which apex is imported: the wheel's, another one that is installed, two that lie over each other."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import apex


def run(code: str, path: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((path, os.environ.get("PYTHONPATH", "")))},
        capture_output=True,
        text=True,
        check=False,
    )


class TestPackages(unittest.TestCase):
    def site(self, files: dict[str, str], record: str = "") -> str:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()), "site-packages")
        info = {"apex-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: apex\nVersion: 0.1\n"}
        for name, text in (files | info | {"apex-0.1.dist-info/RECORD": record}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return str(folder)

    def ours(self) -> str:
        """The wheel's package by itself, in front of what else is on the path."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "apex").symlink_to(Path(apex.__file__).resolve().parent)
        return str(folder)

    def test_another_apex_is_loaded(self):
        other = self.site(
            {"apex/__init__.py": "from . import amp\n", "apex/amp/__init__.py": "kind = 'other'\n"},
            "apex/__init__.py,,\napex/amp/__init__.py,,\n",
        )
        done = run("from apex import amp; print(amp.kind)", os.pathsep.join((self.ours(), other)))
        self.assertEqual(done.stdout, "other\n", done.stderr)
        self.assertIn("is loaded instead of the one that the torch wheel brings", done.stderr)

    def test_another_project_of_that_name_is_not(self):
        other = self.site({"apex/__init__.py": "kind = 'no apex'\n"}, "apex/__init__.py,,\n")
        done = run("from apex import amp; print(amp.initialize.__name__)", os.pathsep.join((self.ours(), other)))
        self.assertEqual((done.stdout, done.stderr), ("initialize\n", ""))

    def test_one_over_the_other(self):
        code = Path(apex.__file__).read_text()
        both = self.site({"apex/__init__.py": code, "apex/amp/__init__.py": ""}, "apex/amp/__init__.py,,\n")
        done = run("import apex", both)
        self.assertRegex(done.stderr, "ImportError: apex 0.1 and this torch wheel.*pip uninstall apex")

    def test_the_wheels_own_record_is_no_other(self):
        done = run("import apex; print(apex.amp.scale_loss.__name__)", self.ours())
        self.assertEqual((done.stdout, done.stderr), ("scale_loss\n", ""))


if __name__ == "__main__":
    unittest.main()
