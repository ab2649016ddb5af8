"""However a process ends, it ends at once, with status 0 and in silence; a forked child is told that it has no NPU."""

import time
import unittest

import acl_library as acl

PRELUDE = """
    lib = acl.Library()
    lib.check(lib.aclrtSetDevice({device}))
    n = 1500
    a = (acl.FLOAT, [n, n], lib.malloc(4 * n * n), 4 * n * n)
    b = (acl.FLOAT, [n, n], lib.malloc(4 * n * n), 4 * n * n)
    def matmul(count, stream=None):
        for _ in range(count):
            lib.check(lib.run("MatMul", [a, a], [b], stream=stream))
"""


class TestExit(unittest.TestCase):
    def check(self, body, device=0, code=0, **env):
        begin = time.monotonic()
        prelude = "\n".join(line[4:] for line in PRELUDE.format(device=device).splitlines())
        text = prelude + "\n" + "\n".join(line[12:] for line in body.splitlines())
        result = acl.run_script(text, env=env, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (code, ""), result.stdout)
        self.assertLess(time.monotonic() - begin, 50)
        return result.stdout

    def test_with_queued_work(self):
        self.check("""
            matmul(500)
        """)

    def test_with_queued_convolutions(self):
        # oneDNN's engine must not go before the workers stop.
        self.check("""
            image = (acl.FLOAT, [16, 64, 56, 56], lib.malloc(1 << 24), 16 * 64 * 56 * 56 * 4)
            filters = (acl.FLOAT, [64, 64, 3, 3], lib.malloc(1 << 18), 64 * 64 * 9 * 4)
            attrs = lib.aclopCreateAttr()
            for name in (b"strides", b"pads", b"dilations"):
                lib.check(lib.aclopSetAttrListInt(attrs, name, 4, (ctypes.c_int64 * 4)(1, 1, 1, 1)))
            for _ in range(200):
                lib.check(lib.run("Conv2D", [image, filters], [image], attrs=attrs))
        """)

    def test_with_side_streams(self):
        self.check("""
            for s in [lib.stream() for _ in range(4)]:
                matmul(50, s)
        """)

    def test_with_live_threads(self):
        self.check("""
            def work():
                lib.aclrtSetDevice(0)
                x = (acl.FLOAT, [8], lib.malloc(32), 32)
                while True:
                    lib.run("Add", [x, x], [x])
                    lib.aclrtSynchronizeStream(None)
            for _ in range(3):
                threading.Thread(target=work, daemon=True).start()
            matmul(20)
            time.sleep(0.2)
        """)

    def test_with_a_thread_that_waits(self):
        self.check("""
            lib.check(lib.aclsimSetFault(b"MatMul:hang@1"))
            stream = lib.stream()
            matmul(3, stream)
            threading.Thread(target=lambda: lib.aclrtSynchronizeStream(stream), daemon=True).start()
            time.sleep(0.2)
        """)

    def test_with_an_exception_in_flight(self):
        self.check("""
            matmul(100)
            try:
                raise ValueError("on the way out")
            except ValueError:
                sys.exit(0)
        """)

    def test_after_using_only_device_1(self):
        self.check(
            """
            matmul(2)
            lib.check(lib.aclrtSynchronizeDevice())
        """,
            device=1,
        )

    def test_calls_after_the_exit_handlers_return(self):
        self.check("""
            import atexit
            def late():
                matmul(3)
                lib.aclrtSynchronizeDevice()
                print("late")
            atexit.register(late)
            matmul(50)
        """)


class TestFork(unittest.TestCase):
    def test_a_child_forked_after_use_is_refused(self):
        script = """
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            x = (acl.FLOAT, [2], lib.upload(acl.floats(1, 2)), 8)
            s = lib.stream()
            pid = os.fork()
            if pid == 0:
                p = ctypes.c_void_p()
                codes = [lib.aclrtSetDevice(0), lib.aclrtMalloc(ctypes.byref(p), 64, 0)]
                codes += [lib.aclrtSynchronizeStream(s), lib.aclrtFree(x[2])]
                print(set(codes), "spawn" in lib.message(), lib.desc(0, [1]), flush=True)
                sys.exit(0)
            _, status = os.waitpid(pid, 0)
            print(status)
            lib.check(lib.run("Add", [x, x], [x]))
            print(lib.download(x[2], ctypes.c_float, 2))
        """
        result = acl.run_script(script)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout.splitlines(), [f"{{{acl.RT_DEV_SETUP_ERROR}}} True None", "0", "[2.0, 4.0]"])

    def test_a_child_forked_before_use_works(self):
        script = """
            lib = acl.Library()
            n = ctypes.c_uint32()
            lib.check(lib.aclrtGetDeviceCount(ctypes.byref(n)))
            pid = os.fork()
            lib.check(lib.aclrtSetDevice(0))
            x = (acl.FLOAT, [2], lib.upload(acl.floats(1, 2)), 8)
            lib.check(lib.run("Add", [x, x], [x]))
            lib.check(lib.aclrtSynchronizeStream(None))
            assert lib.download(x[2], ctypes.c_float, 2) == [2.0, 4.0]
            if pid:
                print(os.waitpid(pid, 0)[1])
        """
        result = acl.run_script(script)
        self.assertEqual((result.returncode, result.stdout.strip(), result.stderr), (0, "0", ""))


if __name__ == "__main__":
    unittest.main()
