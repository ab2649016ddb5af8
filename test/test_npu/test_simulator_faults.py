"""Faults on demand: ASCEND_SIM_FAULT and aclsimSetFault."""

import ctypes
import unittest

import acl_library as acl


class TestFaults(unittest.TestCase):
    def run_good(self, script, fault):
        result = acl.run_script(script, env={"ASCEND_SIM_FAULT": fault})
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        return result.stdout.splitlines()

    ADD = """
        lib = acl.Library()
        lib.check(lib.aclrtSetDevice(0))
        x = (acl.FLOAT, [2], lib.upload(acl.floats(1, 100)), 8)
        r = (acl.FLOAT, [2], lib.malloc(8), 8)
        for _ in range(4):
            launch = lib.run("Add", [x, x], [r])
            print(launch, lib.aclrtSynchronizeStream(None), *lib.download(r[2], ctypes.c_float, 2))
    """

    def test_scaled_result(self):
        lines = self.run_good(self.ADD, "Add:scale=1.5@3")
        self.assertEqual(lines, ["0 0 2.0 200.0", "0 0 2.0 200.0", "0 0 3.0 300.0", "0 0 2.0 200.0"])

    def test_error(self):
        lines = self.run_good(self.ADD, "Mul:error@1, Add:error@2")
        self.assertEqual([line.split()[1] for line in lines], ["0", str(acl.RT_AICORE_EXCEPTION), "0", "0"])

    def test_hang(self):
        script = """
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            x = (acl.FLOAT, [2], lib.upload(acl.floats(1, 100)), 8)
            print(lib.run("Add", [x, x], [x]), lib.aclrtSynchronizeStreamWithTimeout(None, 100))
        """
        self.assertEqual(self.run_good(script, "Add:hang@1"), [f"0 {acl.RT_STREAM_SYNC_TIMEOUT}"])

    def test_out_of_memory(self):
        script = """
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            p = ctypes.c_void_p()
            print([lib.aclrtMalloc(ctypes.byref(p), 64, 0) for _ in range(3)], lib.message() != "")
        """
        self.assertEqual(self.run_good(script, "malloc:oom@2"), ["[0, 207001, 0] True"])

    def test_lost_device(self):
        script = """
            lib = acl.Library()
            for d in (1, 0):
                lib.check(lib.aclrtSetDevice(d))
            x = (acl.FLOAT, [2], lib.upload(acl.floats(1, 100)), 8)
            p = ctypes.c_void_p()
            print(lib.run("Add", [x, x], [x]), lib.run("Mul", [x, x], [x]), lib.run("Add", [x, x], [x]))
            print(lib.aclrtSynchronizeStream(None), lib.aclrtMalloc(ctypes.byref(p), 64, 0))
            lib.check(lib.aclrtSetDevice(1))
            lib.malloc(64)  # the other device works
            lib.check(lib.aclrtResetDevice(0))
            lib.check(lib.aclrtSetDevice(0))
            x = (acl.FLOAT, [2], lib.upload(acl.floats(1, 100)), 8)
            print(lib.run("Add", [x, x], [x]), lib.aclrtSynchronizeStream(None))
        """
        lost = acl.RT_LOST_HEARTBEAT
        self.assertEqual(self.run_good(script, "device:lost@2"), [f"0 {lost} {lost}", f"{lost} {lost}", "0 0"])

    def test_bad_grammar_is_refused(self):
        bad = [
            "Add", "Add:", "Add:error", "Add:error@", "Add:error@0", "Add:error@-1", "Add:error@1x", "Add:scale@1",
            "Add:scale=@1", "Add:scale=big@1", "Add:explode@1", ":error@1", "malloc:error@1", "device:oom@1",
            "Add:oom@1", "Add:error@1,", "A d:error@1",
        ]  # fmt: skip
        lib = acl.Library()
        for text in bad:
            self.assertEqual(lib.aclsimSetFault(text.encode()), acl.INVALID_PARAM, text)
            self.assertIn("is refused", lib.message())
        script = """
            lib = acl.Library()
            print(lib.aclInit(None), lib.aclrtSetDevice(0), lib.message())
        """
        line = self.run_good(script, "Add:explode@1")[0]
        self.assertTrue(line.startswith("100000 100000"), line)
        self.assertIn("ASCEND_SIM_FAULT", line)

    def test_a_new_specification_counts_anew(self):
        lib = acl.Library()
        lib.check(lib.aclrtSetDevice(0))
        x = (acl.FLOAT, [1], lib.upload(acl.floats(1)), 4)
        codes = []
        for _ in range(2):
            lib.check(lib.aclsimSetFault(b"Add:error@2"))
            for _ in range(2):
                lib.check(lib.run("Add", [x, x], [x]))
                codes.append(lib.aclrtSynchronizeStream(None))
        lib.check(lib.aclsimSetFault(b""))
        self.assertEqual(codes, [0, acl.RT_AICORE_EXCEPTION] * 2)
        self.assertEqual(lib.download(x[2], ctypes.c_float, 1), [4.0])


if __name__ == "__main__":
    unittest.main()
