"""docs/variables.yaml: every environment variable that the sources read is there, none is there that nobody reads, the
bounds and defaults are the code's, and the documents' tables are made from it."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import variables  # noqa: E402

# The one place of each side; whoever else wants a variable calls environment().
READERS = {"c10/npu/NPUOptions.cpp", "simulator/core/environment.h"}
# Functions that read the variable that they are given.
CALLS = r"(?:environment|variable|flag|read_integer|read_size|digit|seconds|getCvar\w+)\(\{?((?:\s*\"[A-Z_0-9]+\",?)+)"
PYTHON = r"environ(?:\.get\(|\.setdefault\(|\.pop\(|\[)\s*\"([A-Z_0-9]+)\""
# What torchrun sets, and what programs of the system read.
FOREIGN = {"HOME", "PYTHONPATH", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def sources(*patterns: str) -> dict[str, str]:
    """The text of the tracked files that match, by path."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}


class VariablesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not (ROOT / ".git").exists():
            raise unittest.SkipTest("needs the repository's list of files")
        folders = ("c10/npu", "aten", "simulator", "torch/csrc")
        cls.cpp = sources(*(f"{folder}/*.{end}" for folder in folders for end in ("cpp", "h", "hpp")))
        cls.python = sources("torch/*.py", "tools/*.py", "setup.py", "third_party/*.py")
        cls.table = {v.name: v for v in variables.read()}

    def test_one_reader(self):
        found = {path for path, text in self.cpp.items() if re.search(r"\b(secure_)?getenv\(", text)}
        self.assertEqual(found, READERS)

    def test_all_are_listed(self):
        names = {}
        for path, text in self.cpp.items():
            for call in re.findall(CALLS, text):
                names.update(dict.fromkeys(re.findall(r"[A-Z_0-9]+", call), path))
        for path, text in self.python.items():
            if not path.startswith("tools/ms_fmk_transplt"):  # writes code that reads variables
                names.update(dict.fromkeys(re.findall(PYTHON, text), path))
        missing = {name: path for name, path in names.items() if name not in self.table and name not in FOREIGN}
        self.assertEqual(missing, {}, "docs/variables.yaml lacks them")

    def test_all_are_read(self):
        other = sources("build.sh", ".ci/*", "test/test_npu/*.py", "tools/*.py", "setup.py")
        texts = [*self.cpp.values(), *self.python.values(), *other.values()]
        unread = [
            v.name
            for v in self.table.values()
            if not v.upstream and not any(re.search(rf"\b{v.name}\b", text) for text in texts)
        ]
        self.assertEqual(unread, [])

    def test_bounds_and_defaults(self):
        """Those that one line of C++ says."""
        options = self.cpp["c10/npu/NPUOptions.cpp"]
        calls = re.findall(r"read_integer\(\"(\w+)\", (\w+), (-?\w+), (\w+)\)", options)
        self.assertGreater(len(calls), 5)
        named = dict(re.findall(r"constexpr int32_t (\w+) = ([\d *]+);", options))
        for name, *rest in calls:
            default, least, most = (
                str(int(named[t].split(" * ")[0]) * int(named[t].split(" * ")[1])) if t in named else t for t in rest
            )
            kind = "0 or 1" if (least, most) == ("0", "1") else f"{least} to {most}"
            with self.subTest(name):
                self.assertEqual((self.table[name].default, self.table[name].type), (default, kind))
        config = self.cpp["simulator/core/config.cpp"]
        for name, least, most in re.findall(r"read_integer\(\"(\w+)\", (\d+), (\d+), ", config):
            with self.subTest(name):
                self.assertEqual(self.table[name].type, f"{least} to {most}")
        hccl = self.cpp["simulator/libhccl/settings.h"]
        for name, member in (("HCCL_CONNECT_TIMEOUT", "connect_timeout"), ("HCCL_EXEC_TIMEOUT", "exec_timeout")):
            with self.subTest(name):
                self.assertEqual(self.table[name].default, re.search(rf"{member} = (\d+);", hccl)[1])

    def test_documents(self):
        for document in variables.DOCUMENTS:
            text = (ROOT / document).read_text(encoding="utf-8")
            with self.subTest(document):
                self.assertEqual(variables.rendered(text, list(self.table.values()), document), text)

    def test_the_table_is_checked(self):
        with self.assertRaisesRegex(ValueError, "README.md: the markers of the table 'run' are missing"):
            variables.rendered("no table", [], "README.md")


if __name__ == "__main__":
    unittest.main()
