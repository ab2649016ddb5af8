"""What the build tells where output is no terminal: how far it is, once a minute, and all that compilers say."""

import contextlib
import io
import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.setup_helpers import progress  # noqa: E402
from tools.setup_helpers.cmake import find_tool  # noqa: E402


class TestProgress(unittest.TestCase):
    def build(self, statements, interval):
        """Runs Ninja on rules `slow` (half a second), `warn` and `fail`; gives its status and what was printed."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        rules = {"slow": "sleep 0.5", "warn": "echo a warning", "fail": "echo an error; exit 1"}
        text = "".join(f"rule {name}\n  command = {command} # $out\n" for name, command in rules.items())
        (folder / "build.ninja").write_text(text + statements)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = progress.run([find_tool("ninja"), "-C", str(folder), "-j1", "-k0"], interval)
        return status, printed.getvalue().splitlines()

    def test_a_long_build_says_how_far_it_is(self):
        status, lines = self.build("".join(f"build {i}: slow\n" for i in range(4)), 0.6)
        self.assertEqual(status, 0)
        steps = [int(re.fullmatch(r"-- (\d) of 4 steps after 0 min", line)[1]) for line in lines]
        self.assertGreaterEqual(len(steps), 2)
        self.assertEqual(steps, sorted(steps))

    def test_a_step_that_takes_long_does_not_silence_it(self):
        _, lines = self.build("build a: slow\n", 0.1)
        self.assertGreaterEqual(len(lines), 3)

    def test_a_short_build_says_nothing(self):
        self.assertEqual(self.build("build a: slow\n", 60), (0, []))

    def test_what_a_compiler_says_comes_through(self):
        self.assertEqual(self.build("build a: warn\n", 60), (0, ["a warning"]))

    def test_an_error_comes_through_with_its_command(self):
        status, lines = self.build("build a: fail\nbuild b: warn\n", 60)
        self.assertEqual(status, 1)
        self.assertIn("an error", lines)
        self.assertIn("a warning", lines)
        self.assertTrue(any(line.startswith("FAILED:") and line.split()[-1] == "a" for line in lines), lines)


if __name__ == "__main__":
    unittest.main()
