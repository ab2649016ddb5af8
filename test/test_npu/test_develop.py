"""`build.sh develop`: byte code beside the files that it lays out."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.fork import develop  # noqa: E402


class TestByteCode(unittest.TestCase):
    def setUp(self):
        self.site = Path(self.enterContext(tempfile.TemporaryDirectory()))
        source = self.site / "elsewhere.py"
        source.write_text("value = 1\n")
        (self.site / "package" / "inner").mkdir(parents=True)
        (self.site / "package" / "__init__.py").write_text("from .inner.linked import value\n")
        (self.site / "package" / "inner" / "linked.py").symlink_to(source)
        self.names = ["package/__init__.py", "package/inner/linked.py", "package/data.txt", "../bin/script.py"]

    def code(self, name):
        return Path(importlib.util.cache_from_source(str(self.site / name)))

    def test_every_python_file_has_its_byte_code(self):
        develop.compile_files(self.site, self.names)
        for name in self.names[:2]:
            self.assertTrue(self.code(name).is_file(), name)

    def test_what_has_changed_is_compiled_again(self):
        develop.compile_files(self.site, self.names)
        changed, same = self.code(self.names[1]), self.code(self.names[0])
        before = changed.read_bytes(), same.stat().st_mtime_ns
        (self.site / "elsewhere.py").write_text("value = 2\n")
        os.utime(self.site / "elsewhere.py", (1, 1))
        develop.compile_files(self.site, self.names)
        self.assertNotEqual(changed.read_bytes(), before[0])
        self.assertEqual(same.stat().st_mtime_ns, before[1])

    def test_an_interpreter_that_writes_none_uses_it(self):
        develop.compile_files(self.site, self.names)
        done = subprocess.run(
            [sys.executable, "-v", "-c", "import package; print(package.value)"],
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(self.site)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(done.stdout.strip(), "1", done.stderr)
        self.assertIn(f"code object from '{self.code(self.names[1])}'", done.stderr)


if __name__ == "__main__":
    unittest.main()
