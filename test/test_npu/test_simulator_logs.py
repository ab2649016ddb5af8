"""The host log: where it goes, what is in it, and the operator lines that tools read."""

import re
import tempfile
import unittest
from pathlib import Path

import acl_library as acl

ADD = """
    lib = acl.Library()
    lib.check(lib.aclInit(None))
    lib.check(lib.aclrtSetDevice(0))
    x = (acl.FLOAT, [2, 3], lib.malloc(24), 24)
    for _ in range(3):
        lib.check(lib.run("Add", [x, x], [x]))
    lib.check(lib.aclrtSynchronizeStream(None))
    lib.run("NoSuchOperator", [x], [x])
"""


class TestLogs(unittest.TestCase):
    def run_logged(self, **env):
        with tempfile.TemporaryDirectory() as home:
            result = acl.run_script(ADD, env={"HOME": home, **env})
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            files = sorted(Path(home).glob("ascend/log/plog/*"))
            self.files = [f.name for f in files]
            return result.stdout, "".join(f.read_text() for f in files)

    def test_operators_are_logged_once_each_as_they_are_compiled(self):
        stdout, log = self.run_logged(ASCEND_GLOBAL_LOG_LEVEL="1")
        self.assertEqual(stdout, "")
        self.assertEqual(len(self.files), 1)
        self.assertRegex(self.files[0], r"^plog-\d+_\d{17}\.log$")
        lines = [line for line in log.splitlines() if line.startswith("[INFO] ASCENDCL")]
        lines = [line for line in lines if "aclopCompile::aclOp" in line]
        self.assertEqual(len(lines), 1)
        # As the porting guide's script reads it: behind "OpType: ", without the last character.
        info = lines[0].split("OpType: ")[1][:-1]
        self.assertEqual(info.split(",")[0], "Add")
        self.assertIn("float32[2,3]", info)
        time = r"\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{3}\.\d{3}"
        self.assertRegex(lines[0], r"^\[INFO\] ASCENDCL\(\d+,[^)]+\):" + time + r" \[\w+\.cpp:\d+\]\d+ ")

    def test_default_level_is_error(self):
        _, log = self.run_logged()
        self.assertTrue(log)
        self.assertEqual({re.match(r"\[(\w+)\]", line)[1] for line in log.splitlines()}, {"ERROR"})
        self.assertIn("NoSuchOperator", log)

    def test_levels(self):
        self.assertEqual(self.run_logged(ASCEND_GLOBAL_LOG_LEVEL="4")[1], "")
        self.assertEqual(self.files, [])
        self.assertNotIn("[INFO]", self.run_logged(ASCEND_GLOBAL_LOG_LEVEL="2")[1])

    def test_events(self):
        self.assertNotIn("[EVENT]", self.run_logged(ASCEND_GLOBAL_EVENT_ENABLE="0", ASCEND_GLOBAL_LOG_LEVEL="1")[1])
        self.assertIn("[EVENT]", self.run_logged(ASCEND_GLOBAL_EVENT_ENABLE="1")[1])

    def test_stdout(self):
        stdout, log = self.run_logged(ASCEND_SLOG_PRINT_TO_STDOUT="1", ASCEND_GLOBAL_LOG_LEVEL="1")
        self.assertIn("aclopCompile::aclOp OpType: Add, ", stdout)
        self.assertEqual(stdout, log)


if __name__ == "__main__":
    unittest.main()
