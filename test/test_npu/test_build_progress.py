"""What the build tells where output is no terminal: how far it is, once a minute, and all that compilers say."""

import contextlib
import io
import re
import subprocess
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


class TestPip(unittest.TestCase):
    def install(self, status):
        """build.sh's function that calls pip, with a Python in its place that says what pip says."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        python = folder / "bin/python"
        python.parent.mkdir()
        lines = ("WARNING: an index is ignored", "ERROR: no such package", "---- 1/1 MB")
        says = "\n".join(f"echo '{line}'{' >&2' * (i < 2)}" for i, line in enumerate(lines))
        python.write_text(f"#!/bin/sh\n{says}\nexit {status}\n")
        python.chmod(0o755)
        function = re.search(r"^pip_install\(\) {\n.*?^}\n", (ROOT / "build.sh").read_text(), re.M | re.S)[0]
        script = f"set -euo pipefail\nVENV={folder} BUILD={folder} PIP_LOG={folder}/pip.log\n{function}pip_install x\n"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        self.assertEqual(sorted((folder / "pip.log").read_text().splitlines()), sorted(lines))
        return done.returncode, done.stdout, done.stderr

    def test_only_errors_are_told(self):
        self.assertEqual(self.install(0), (0, "", ""))
        self.assertEqual(self.install(1), (1, "", "ERROR: no such package\n"))


if __name__ == "__main__":
    unittest.main()
