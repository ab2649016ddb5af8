"""docs/glossary.md and docs/architecture.md: the files that they name exist, and so do the names and notes."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FRAME = ROOT / "aten/src/ATen/native/npu"


def place(name: str) -> Path | None:
    """The file or folder of a name that is given from the root, or from the kernels' folder."""
    return next((folder / name for folder in (ROOT, FRAME) if (folder / name).exists()), None)


class GlossaryTest(unittest.TestCase):
    def rows(self):
        text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
        rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in row] for row in rows if row[0].strip() not in ("word", "---")]

    def test_files_and_names(self):
        rows = self.rows()
        self.assertGreater(len(rows), 30)
        for word, _, see in rows:
            with self.subTest(word):
                files = re.findall(r"`([^`]+)`", see)
                self.assertTrue(files)
                for name in files:
                    self.assertIsNotNone(place(name), f"no file {name}")
                # Classes and functions that are named as such are in the first file.
                text = path.read_text(encoding="utf-8") if (path := place(files[0])).is_file() else ""
                for name in re.findall(r"`(\w+)`", word):
                    self.assertTrue(re.search(rf"\b{name}\b", text), f"{files[0]} has no {name}")

    def test_words_come_once(self):
        words = [word for row in self.rows() for word in row[0].split(", ")]
        self.assertEqual(len(words), len(set(words)))

    def test_architecture(self):
        text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
        table = text.partition("## Invariants")[2].partition("## The build")[0]
        notes = re.findall(r"^\| (.+?) \| `(.+?)` \|", table, re.M)
        self.assertGreater(len(notes), 5)
        for note, name in notes:
            with self.subTest(note):
                self.assertIsNotNone(place(name), f"no file {name}")
                found = f"Note [{note}]" in place(name).read_text(encoding="utf-8")
                self.assertTrue(found, f"{name} has no such note")


if __name__ == "__main__":
    unittest.main()
