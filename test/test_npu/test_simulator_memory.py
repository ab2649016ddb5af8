"""The simulated device's memory: out of reach of the host, bounded, given back, checked."""

import ctypes
import os
import signal
import textwrap
import unittest

import acl_library as acl


class TestMemory(unittest.TestCase):
    def run_good(self, script, **env):
        result = acl.run_script(script, env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        return result.stdout.split()

    def test_a_host_that_dereferences_a_device_pointer_crashes(self):
        for access in ("ctypes.string_at(p, 1)", "ctypes.memset(p, 1, 1)"):
            script = f"""
                lib = acl.Library()
                lib.check(lib.aclrtSetDevice(0))
                p = lib.malloc(4096)
                {access}
            """
            self.assertEqual(acl.run_script(script).returncode, -signal.SIGSEGV)

    def test_memory_is_bounded_and_the_bound_is_per_device(self):
        script = """
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            p = ctypes.c_void_p()
            print(lib.aclrtMalloc(ctypes.byref(p), 65 << 20, 0))
            assert "out of memory" in lib.message()
            blocks = [lib.malloc(16 << 20) for _ in range(4)]
            print(lib.aclrtMalloc(ctypes.byref(p), 4096, 0))
            lib.check(lib.aclrtSetDevice(1))
            print(lib.aclrtMalloc(ctypes.byref(p), 60 << 20, 0))
            lib.check(lib.aclrtSetDevice(0))
            lib.check(lib.aclrtFree(blocks[1]))
            lib.check(lib.aclrtFree(blocks[3]))
            print(lib.aclrtMalloc(ctypes.byref(p), 32 << 20, 0))  # fragments do not matter
        """
        self.assertEqual(self.run_good(script, ASCEND_SIM_MEMORY="64M"), ["207001", "207001", "0", "0"])

    def test_processes_on_one_device_share_its_bound(self):
        # The script starts a second process, which holds 40 of the device's 64 MiB until it is told otherwise.
        script = """
            import signal, subprocess
            holder = prelude + '''
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            blocks = [lib.malloc(20 << 20) for _ in range(2)]
            print("ready", flush=True)
            for line in sys.stdin:
                lib.check(lib.aclrtFree(blocks.pop()))
                print("freed", flush=True)
            '''
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            def start(**env):
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
                process = subprocess.Popen([sys.executable, "-c", holder], env=dict(os.environ, **env), **pipes)
                assert process.stdout.readline() == "ready\\n"
                return process
            def free():
                left, whole = ctypes.c_size_t(), ctypes.c_size_t()
                lib.check(lib.aclrtGetMemInfo(1, ctypes.byref(left), ctypes.byref(whole)))
                return left.value >> 20
            def fits(mib):
                p = ctypes.c_void_p()
                code = lib.aclrtMalloc(ctypes.byref(p), mib << 20, 0)
                if code == 0:
                    lib.check(lib.aclrtFree(p))
                return code == 0
            assert free() == 64 and fits(64)
            first = start()
            assert free() == 24 and fits(24)
            assert not fits(26)
            text = lib.message()
            assert f"process {first.pid} uses {40 << 20} bytes" in text, text
            lib.check(lib.aclrtSetDevice(1))
            assert fits(64)  # another device
            lib.check(lib.aclrtSetDevice(0))
            first.stdin.write("free one\\n")
            first.stdin.flush()
            assert first.stdout.readline() == "freed\\n"
            assert free() == 44 and fits(44) and not fits(46)
            other = start(ASCEND_SIM_HOST=os.environ["ASCEND_SIM_HOST"] + "-other")  # another host's device
            assert free() == 44
            mine = lib.malloc(44 << 20)
            assert free() == 0
            for process in (first, other):
                process.kill()
                process.wait()
            assert free() == 20 and fits(20) and not fits(22)
            lib.check(lib.aclrtFree(mine))
            last = start()
            last.communicate()  # ends by itself
            assert free() == 64 and fits(64)
        """
        prelude = f"import sys; sys.path.insert(0, {str(acl.ROOT / 'test/test_npu')!r}); import acl_library as acl"
        script = f"prelude = {prelude!r}\n" + textwrap.dedent(script)
        self.run_good(script, ASCEND_SIM_MEMORY="64M")

    def test_a_program_that_replaces_itself_gives_its_memory_back(self):
        script = """
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            left, whole = ctypes.c_size_t(), ctypes.c_size_t()
            if len(sys.argv) == 1:
                lib.malloc(40 << 20)
                os.execv(sys.executable, [*sys.orig_argv, "again"])
            lib.check(lib.aclrtGetMemInfo(1, ctypes.byref(left), ctypes.byref(whole)))
            print(left.value >> 20)
        """
        self.assertEqual(self.run_good(script, ASCEND_SIM_MEMORY="64M"), ["64"])

    def test_many_processes_open_a_device_at_once(self):
        # All must find the same table: together they use what one of them sees.
        script = """
            import multiprocessing
            def work(barrier):
                lib = acl.Library()
                barrier.wait()
                lib.check(lib.aclrtSetDevice(0))
                lib.malloc(1 << 20)
                barrier.wait()
                left, whole = ctypes.c_size_t(), ctypes.c_size_t()
                lib.check(lib.aclrtGetMemInfo(1, ctypes.byref(left), ctypes.byref(whole)))
                os.write(1, b"%d\\n" % (left.value >> 20))  # a whole line at once: print may write its end apart
                barrier.wait()
            context = multiprocessing.get_context("fork")
            barrier = context.Barrier(8)
            processes = [context.Process(target=work, args=(barrier,)) for _ in range(8)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
        """
        self.assertEqual(self.run_good(script, ASCEND_SIM_MEMORY="64M"), ["48"] * 8)

    def test_freed_pages_go_back_to_the_host(self):
        script = """
            def resident():
                fields = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
                return int(fields["RssShmem"].split()[0]) >> 10
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            before = resident()
            p = lib.malloc(128 << 20)
            lib.check(lib.aclrtMemset(p, 128 << 20, 1, 128 << 20))
            used = resident() - before
            lib.check(lib.aclrtFree(p))
            left = resident() - before
            print(used >= 120, left < 8)
            q = lib.malloc(128 << 20)
            print(lib.download(q, ctypes.c_uint32, 1)[0])
        """
        self.assertEqual(self.run_good(script), ["True", "True", "0"])

    def test_environment(self):
        script = """
            lib = acl.Library()
            n = ctypes.c_uint32()
            code = lib.aclrtGetDeviceCount(ctypes.byref(n))
            print(code, n.value, lib.aclrtSetDevice(0), lib.message())
        """
        self.assertEqual(self.run_good(script, ASCEND_SIM_DEVICE_COUNT="3")[:3], ["0", "3", "0"])
        self.assertEqual(self.run_good(script, ASCEND_RT_VISIBLE_DEVICES="5,1")[:3], ["0", "2", "0"])
        self.assertEqual(self.run_good(script, ASCEND_RT_VISIBLE_DEVICES="2,x,3")[:2], ["0", "1"])
        self.assertEqual(self.run_good(script, ASCEND_RT_VISIBLE_DEVICES="9")[:2], ["0", "0"])
        refused = (
            "ASCEND_SIM_DEVICE_COUNT=0",
            "ASCEND_SIM_DEVICE_COUNT=many",
            "ASCEND_SIM_MEMORY=8X",
            "ASCEND_SIM_TINY=-1",
        )
        for name, value in (text.split("=") for text in refused):
            words = self.run_good(script, **{name: value})
            self.assertEqual(words[0], "100000")
            self.assertIn(name, " ".join(words))

    @unittest.skipIf("san.so" in os.environ.get("LD_PRELOAD", ""), "a sanitizer needs all addresses")
    def test_limits_of_the_process_are_named(self):
        for limit, size, name in (("RLIMIT_AS", 8 << 30, "ulimit -v"), ("RLIMIT_FSIZE", 1 << 20, "ulimit -f")):
            words = self.run_good(f"""
                import resource
                resource.setrlimit(resource.{limit}, ({size}, {size}))
                lib = acl.Library()
                print(lib.aclrtSetDevice(0), lib.aclGetRecentErrMsg().decode())
            """)
            self.assertIn(words[0], ("207001", "507033"))
            self.assertIn(name, " ".join(words))
            self.assertIn("ASCEND_SIM_MEMORY", " ".join(words))

    def test_copies_are_counted(self):
        lib = acl.Library()
        lib.check(lib.aclrtSetDevice(2))
        p = lib.malloc(4096)
        before = lib.counters(2)
        lib.check(lib.aclrtMemcpy(p, 64, ctypes.addressof(acl.floats(*range(16))), 64, acl.H2D))
        lib.download(p, ctypes.c_float, 4)
        lib.check(lib.aclrtMemcpyAsync(p + 2048, 32, p, 32, acl.D2D, None))
        lib.check(lib.aclrtSynchronizeStream(None))
        after = lib.counters(2)
        change = {k: after[k] - before[k] for k in after}
        names = ("h2d", "h2d_bytes", "d2h", "d2h_bytes", "d2d", "d2d_bytes")
        self.assertEqual([change[k] for k in names], [1, 64, 1, 16, 1, 32])
        lib.check(lib.aclrtFree(p))

    def test_pageable_memory_may_change_after_an_asynchronous_copy(self):
        lib = acl.Library()
        lib.check(lib.aclrtSetDevice(0))
        count = 1 << 20
        source = (ctypes.c_int32 * count)(*range(count))
        stream, p = lib.stream(), lib.malloc(4 * count)
        lib.check(lib.aclrtMemcpyAsync(p, 4 * count, ctypes.addressof(source), 4 * count, acl.H2D, stream))
        ctypes.memset(source, 0, 4 * count)
        result = (ctypes.c_int32 * count)()
        lib.check(lib.aclrtMemcpyAsync(ctypes.addressof(result), 4 * count, p, 4 * count, acl.D2H, stream))
        self.assertEqual(result[count - 1], count - 1)  # such a copy to ordinary memory ends before the call does
        lib.check(lib.aclrtDestroyStream(stream))
        lib.check(lib.aclrtFree(p))

    def test_physical_memory_is_shared_between_processes(self):
        script = """
            class Property(ctypes.Structure):
                _fields_ = [(n, ctypes.c_int) for n in ("a", "b", "c", "id", "where")] + [("r", ctypes.c_uint64)]
            import subprocess
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            size, piece, base, handle = 2 << 20, ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
            lib.check(lib.aclrtReserveMemAddress(ctypes.byref(base), size, 0, None, 0))
            if len(sys.argv) == 1:
                wanted = Property(0, 0, 4, 0, 1, 0)
                lib.check(lib.aclrtMallocPhysical(ctypes.byref(piece), size, ctypes.byref(wanted), 0))
                lib.check(lib.aclrtMapMem(base, size, 0, piece, 0))
                lib.check(lib.aclrtMemExportToShareableHandle(piece, 0, 1, ctypes.byref(handle)))
                command = [sys.executable, "-c", SOURCE, str(handle.value)]
                child = subprocess.run(command, capture_output=True, text=True)
                print(child.returncode, child.stderr, lib.download(base.value, ctypes.c_float, 2))
            else:
                lib.check(lib.aclrtMemImportFromShareableHandle(int(sys.argv[1]), 1, ctypes.byref(piece)))
                lib.check(lib.aclrtMapMem(base, size, 0, piece, 0))
                lib.check(lib.aclrtMemcpy(base, 8, ctypes.addressof(acl.floats(2.5, 4.5)), 8, acl.H2D))
        """
        text = textwrap.dedent(script)
        prelude = f"import sys; sys.path.insert(0, {acl.__file__.rsplit('/', 1)[0]!r})\n"
        prelude += "import ctypes\nimport acl_library as acl\n"
        result = acl.run_script(f"SOURCE = {prelude + text!r}\n" + text)
        self.assertEqual(result.stdout.strip(), "0  [2.5, 4.5]", result.stderr)


if __name__ == "__main__":
    unittest.main()
