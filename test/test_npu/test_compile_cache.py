"""The simulated device's compiled operators: found again, bounded in number, and never freed while work needs them."""

import ctypes
import threading
import unittest

import acl_library as acl

lib = acl.Library()

MOST = 16384  # operators that the cache holds; what was taken out of it waits for a while to be freed
SIZE = 4 * 16**4


def shape(i):
    """Shapes that differ for all i below 16**4, of up to 16**4 elements."""
    return [i % 16 + 1, i // 16 % 16 + 1, i // 256 % 16 + 1, i // 4096 % 16 + 1]


def setUpModule():
    lib.check(lib.aclrtSetDevice(0))


class TestCompileCache(unittest.TestCase):
    def setUp(self):
        lib.check(lib.aclrtSetDevice(0))
        lib.check(lib.aclsimSetFault(b""))
        self.x = lib.malloc(SIZE)
        self.one = lib.upload(acl.floats(1))
        lib.check(lib.aclrtMemset(self.x, SIZE, 0, SIZE))

    def tearDown(self):
        lib.check(lib.aclrtSynchronizeDevice())
        lib.check(lib.aclrtFree(self.x))
        lib.check(lib.aclrtFree(self.one))

    def neg(self, dims):
        x = (acl.FLOAT, dims, self.x, SIZE)
        return lib.run("Neg", [x], [x])

    def run_shapes(self, *numbers):
        """Runs an operator on each shape(i)."""
        dims, operand = (ctypes.c_int64 * 4)(), (ctypes.c_void_p * 1)()
        data = (ctypes.c_void_p * 1)(lib.aclCreateDataBuffer(self.x, SIZE))
        at = [ctypes.addressof(a) for a in (dims, operand, data)]
        for i in range(*numbers):
            dims[:] = shape(i)
            operand[0] = lib.aclCreateTensorDesc(acl.FLOAT, 4, at[0], acl.ND)
            lib.check(lib.aclopCompileAndExecute(b"Neg", 1, at[1], at[2], 1, at[1], at[2], None, 0, 0, None, None))
            lib.aclDestroyTensorDesc(operand[0])
        lib.check(lib.aclDestroyDataBuffer(data[0]))

    def compiled(self):
        return lib.counters()["compiled"]

    def add_one(self, x):
        operand, one = (acl.FLOAT, [1], x, 4), (acl.FLOAT, [1], self.one, 4)
        return lib.run("Add", [operand, one], [operand])

    def test_a_shape_is_compiled_once(self):
        lib.check(self.neg([7, 11]))
        before = self.compiled()
        for _ in range(20):
            lib.check(self.neg([7, 11]))
        self.assertEqual(self.compiled(), before)
        lib.check(self.neg([11, 7]))
        self.assertEqual(self.compiled(), before + 1)

    def test_the_number_of_compiled_operators_is_bounded(self):
        for part in range(4):
            self.run_shapes(part * MOST, (part + 1) * MOST)
            self.assertLess(lib.counters()["cached"], 2 * MOST)
        # Shapes whose operators are gone are compiled again.
        before = self.compiled()
        self.run_shapes(1000)
        self.assertGreater(self.compiled(), before)
        y = lib.upload(acl.floats(5))
        lib.check(self.add_one(y))
        lib.check(lib.aclrtSynchronizeStream(None))
        self.assertEqual(lib.download(y, ctypes.c_float, 1), [6])
        lib.check(lib.aclrtFree(y))

    def test_what_is_used_stays(self):
        y = lib.upload(acl.floats(0))
        lib.check(self.add_one(y))
        for start in range(0, 4 * MOST, 1024):
            self.run_shapes(start, start + 1024)
            before = self.compiled()
            lib.check(self.add_one(y))
            self.assertEqual(self.compiled(), before)
        lib.check(lib.aclrtFree(y))

    def test_what_aclopCompile_made_is_kept(self):
        operand = (acl.FLOAT, [3, 5, 17], self.x, SIZE)
        lib.check(lib.run("Abs", [operand], [operand], call="aclopCompile"))
        self.run_shapes(4 * MOST)
        lib.check(lib.run("Abs", [operand], [operand], call="aclopExecuteV2"))

    def test_queued_work_keeps_its_operators(self):
        stream = lib.stream()
        lib.check(lib.aclrtSetOpExecuteTimeOut(3))
        lib.check(lib.aclsimSetFault(b"Sqrt:hang@1"))
        y, z = lib.upload(acl.floats(4)), lib.upload(acl.floats(*range(1, 61)))
        operand = (acl.FLOAT, [1], y, 4)
        lib.check(lib.run("Sqrt", [operand], [operand], stream=stream))
        lib.check(lib.aclsimSetFault(b""))
        for dims in ([60], [3, 20], [4, 15], [5, 12], [6, 10], [2, 30], [60, 1]):
            many = (acl.FLOAT, dims, z, 240)
            lib.check(lib.run("Neg", [many], [many], stream=stream))
        self.run_shapes(4 * MOST)
        self.assertEqual(lib.aclrtSynchronizeStream(stream), acl.RT_AICORE_TIMEOUT)
        self.assertEqual(lib.download(z, ctypes.c_float, 60), [-float(i) for i in range(1, 61)])
        lib.check(lib.aclrtSetOpExecuteTimeOut(600))
        lib.check(lib.aclrtDestroyStream(stream))
        lib.check(lib.aclrtFree(y))
        lib.check(lib.aclrtFree(z))

    def test_threads_launch_while_operators_go(self):
        wrong, stop = [], threading.Event()

        def work():
            try:
                lib.check(lib.aclrtSetDevice(0))
                stream, y, count = lib.stream(), lib.upload(acl.floats(0)), 0
                operand, one = (acl.FLOAT, [1], y, 4), (acl.FLOAT, [1], self.one, 4)
                while not stop.is_set():
                    lib.check(lib.run("Add", [operand, one], [operand], stream=stream))
                    count += 1
                lib.check(lib.aclrtSynchronizeStream(stream))
                if lib.download(y, ctypes.c_float, 1) != [count]:
                    wrong.append(count)
                lib.check(lib.aclrtDestroyStream(stream))
                lib.check(lib.aclrtFree(y))
            except AssertionError as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.run_shapes(3 * MOST)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
