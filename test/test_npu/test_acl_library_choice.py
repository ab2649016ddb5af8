"""Which library stands behind the ABI: CANN where a card answers, else the simulator; or as ASCEND_SIMULATOR says."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import acl_library as acl
import acl_stub
import several_devices  # noqa: F401

# A library that looks like CANN's: it counts devices, and says which it is.
FAKE = """
extern "C" int aclrtGetDeviceCount(unsigned* count) { *count = DEVICES; return CODE; }
extern "C" const char* aclrtGetSocName() { return "Ascend_fake"; }
extern "C" int aclInit(const char*) { return 507899; }
"""

ASK_FOR_A_GROUP = """
import tempfile, torch
store = "file://" + tempfile.mktemp()
try:
    torch.distributed.init_process_group("hccl", init_method=store, rank=0, world_size=1)
except RuntimeError as error:
    print(error)
"""

ASK = """
import torch
try:
    x = torch.ones(2, device="npu") + 1
    print("simulator" if x.sum().item() == 4 else "wrong")
except RuntimeError as error:
    print(error)
"""


class TestLibraryChoice(unittest.TestCase):
    def ask(self, question=ASK, **env):
        variables = {k: v for k, v in os.environ.items() if not k.startswith("ASCEND_")}
        result = subprocess.run(
            [sys.executable, "-c", question],
            env={**variables, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout, result.stderr

    def fake_cann(self, folder, devices=1, code=0):
        """A folder laid out as ASCEND_HOME_PATH, with a library that reports that many devices."""
        compiler = shutil.which("g++") or shutil.which("c++")
        if compiler is None:
            self.skipTest("no C++ compiler")
        names = [
            f.name
            for f in acl.table()
            if f.library != "simulator" and f.required and f.name not in ("aclrtGetDeviceCount", "aclInit")
        ]
        stubs = "".join(f'extern "C" void {name}() {{}}\n' for name in names)
        source = Path(folder) / "fake.cpp"
        source.write_text(FAKE.replace("DEVICES", str(devices)).replace("CODE", str(code)) + stubs)
        lib = Path(folder) / "lib64"
        lib.mkdir()
        for soname in ("libascendcl.so", "libacl_op_compiler.so"):
            subprocess.run([compiler, "-shared", "-fPIC", "-o", str(lib / soname), str(source)], check=True)
        return folder

    def test_without_cann_the_simulator_is_used_silently(self):
        self.assertEqual(self.ask(), ("simulator\n", ""))

    def test_a_cann_without_hccl_is_named_by_the_first_group(self):
        with tempfile.TemporaryDirectory() as folder:
            stdout, _ = self.ask(ASK_FOR_A_GROUP, ASCEND_SIMULATOR="off", ASCEND_HOME_PATH=self.fake_cann(folder))
        for part in ("libhccl.so", "set_env.sh", folder, "install"):
            self.assertIn(part, stdout)

    def test_by_hand(self):
        self.assertEqual(self.ask(ASCEND_SIMULATOR="on", ASCEND_HOME_PATH="/does/not/exist"), ("simulator\n", ""))
        stdout, _ = self.ask(ASCEND_SIMULATOR="maybe")
        self.assertIn("ASCEND_SIMULATOR is 'maybe'", stdout)

    def test_off_without_a_card_names_what_is_missing(self):
        stdout, stderr = self.ask(ASCEND_SIMULATOR="off")
        for part in ("driver", "/dev/davinci", "set_env.sh", "libascendcl.so"):
            self.assertIn(part, stdout)
        self.assertNotIn("simulated", stderr)

    def test_libraries_without_a_device_give_the_simulator_and_one_warning(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fake_cann(folder, 0)
            stdout, stderr = self.ask(ASCEND_HOME_PATH=folder)
            self.assertEqual((stdout, len(stderr.splitlines())), ("simulator\n", 1), stderr)
            self.assertIn("reports no device", stderr)
            stdout, _ = self.ask(ASCEND_HOME_PATH=folder, ASCEND_SIMULATOR="off")
            self.assertIn(folder, stdout)
            self.assertNotIn("set_env.sh", stdout)
        with tempfile.TemporaryDirectory() as folder:
            self.fake_cann(folder, 0, 507033)
            stdout, stderr = self.ask(ASCEND_TOOLKIT_HOME=folder)
            self.assertEqual((stdout, len(stderr.splitlines())), ("simulator\n", 1), stderr)
            self.assertIn("507033", stderr)

    def test_libraries_on_the_library_path_count_too(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fake_cann(folder, 0)
            stdout, stderr = self.ask(LD_LIBRARY_PATH=f"{folder}/lib64")
            self.assertEqual((stdout, len(stderr.splitlines())), ("simulator\n", 1))

    def test_a_card_is_used(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fake_cann(folder)
            stdout, stderr = self.ask(ASCEND_HOME_PATH=folder)
            self.assertIn("507899", stdout)  # the fake library's own error, so it was the one that was called
            self.assertNotIn("simulated", stderr)

    def test_a_library_that_is_too_old_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fake_cann(folder)
            compiler = shutil.which("g++") or shutil.which("c++")
            source = Path(folder) / "old.cpp"
            source.write_text(FAKE.replace("DEVICES", "1").replace("CODE", "0"))
            for soname in ("libascendcl.so", "libacl_op_compiler.so"):
                path = f"{folder}/lib64/{soname}"
                subprocess.run([compiler, "-shared", "-fPIC", "-o", path, str(source)], check=True)
            stdout, _ = self.ask(ASCEND_HOME_PATH=folder)
            self.assertIn("lacks", stdout)
            self.assertIn("aclrtMalloc", stdout)


# What a stub's script does with the device; everything in it is of the first releases.
USE = """
import torch
x = torch.arange(6.0, device="npu:0")
side = torch.npu.Stream()
side.wait_stream(torch.npu.current_stream())
begin, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
with torch.npu.stream(side):
    begin.record()
    y = (x * 2 + 1).view(2, 3) @ torch.ones(3, 1, device="npu:0")
    end.record()
end.synchronize()
side.synchronize()
assert side.query() and end.query() and begin.elapsed_time(end) >= 0
assert y.to("npu:1").cpu().flatten().tolist() == [9.0, 27.0]
assert int(x.argmax()) == 5
assert torch.npu.get_device_properties(0).total_memory > 0 and torch.npu.get_device_name(0)
torch.npu.synchronize()
print("used", *sorted({line.split("/")[-1].strip() for line in open("/proc/self/maps") if "/stub/" in line}))
"""


class TestReleases(unittest.TestCase):
    """CANN as its releases have it: stubs that export a part of the interface and have the simulator do the work."""

    def setUp(self):
        if acl_stub.compiler() is None:
            self.skipTest("no C++ compiler")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name) / "stub"
        (self.home / "lib64").mkdir(parents=True)

    def stub(self, functions, soname="libascendcl.so", bodies=None):
        acl_stub.write(self.home, functions, soname, bodies)

    def python(self, body, **env):
        variables = {k: v for k, v in os.environ.items() if not k.startswith("ASCEND_")}
        variables |= {"ASCEND_SIM_DEVICE_COUNT": "8", **acl_stub.environment(self.home), **env}
        result = subprocess.run(
            [sys.executable, "-c", body], env=variables, capture_output=True, text=True, timeout=120, check=False
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def of_cann(self, until=99.0):
        return acl_stub.of_cann(until)

    def halves(self, functions):
        return acl_stub.halves(functions)

    def test_a_release_before_the_first_supported_one_is_refused_by_name(self):
        runtime, compiler = self.halves(self.of_cann(5.0))
        self.stub(runtime)
        self.stub(compiler, "libacl_op_compiler.so")
        (self.home / "runtime").mkdir()
        (self.home / "runtime" / "version.info").write_text("Version=5.0.2\n")
        body = "import torch; print(torch.ones(2).sum().item(), torch.npu.is_available())\n"
        body += "try: torch.ones(2, device='npu')\nexcept RuntimeError as error: print(error)"
        stdout = self.python(body)
        self.assertTrue(stdout.startswith("2.0 False\n"), stdout)
        for part in (str(self.home), "CANN 5.0.2", "lacks aclSetTensorPlaceMent (CANN 5.1)", "CANN 5.1 or later"):
            self.assertIn(part, stdout)

    def test_nothing_optional_is_needed(self):
        runtime, compiler = self.halves([f for f in self.of_cann() if f.required])
        self.stub(runtime)
        self.stub(compiler, "libacl_op_compiler.so")
        self.assertEqual(self.python(USE), "used libacl_op_compiler.so libascendcl.so\n")

    def test_a_missing_feature_says_which_function_and_release(self):
        runtime, compiler = self.halves([f for f in self.of_cann() if f.required or f.name == "aclrtGetVersion"])
        self.stub(runtime)
        self.stub(compiler, "libacl_op_compiler.so")
        body = "import torch\n"
        for call in ("init_dump()", "set_option({'ACL_OP_DEBUG_LEVEL': '1'})"):
            body += f"try: torch.npu.{call}\nexcept RuntimeError as error: print(error)\n"
        stdout = self.python(body)
        where = f"of {self.home}/lib64/libascendcl.so (AscendCL 1."
        self.assertIn(f"aclmdlInitDump is not in libascendcl.so {where}", stdout)
        self.assertIn("; CANN 5.0 has it", stdout)
        self.assertIn(f"aclSetCompileopt is not in libacl_op_compiler.so {where}", stdout)

    def test_a_release_between(self):
        runtime, compiler = self.halves(self.of_cann(7.0))
        self.stub(runtime)
        self.stub(compiler, "libacl_op_compiler.so")
        self.assertEqual(self.python(USE, TASK_QUEUE_ENABLE="0"), "used libacl_op_compiler.so libascendcl.so\n")

    def test_a_product_that_does_less(self):
        """Devices that do not reach each other copy through the host; a number that is not told is 0."""
        runtime, compiler = self.halves(self.of_cann())
        bodies = {"aclrtDeviceCanAccessPeer": "if (deviceId >= 0) { *canAccessPeer = 0; return ACL_SUCCESS; }"}
        for name in ("aclrtDeviceEnablePeerAccess", "aclGetDeviceCapability"):
            bodies[name] = 'if (getenv("STUB_TARGET")) return ACL_ERROR_RT_FEATURE_NOT_SUPPORT;'
        self.stub(runtime, bodies=bodies)
        self.stub(compiler, "libacl_op_compiler.so")
        body = USE + "print(torch.npu.get_device_properties(0).cube_core_num)"
        self.assertEqual(self.python(body), "used libacl_op_compiler.so libascendcl.so\n0\n")

    def test_libraries_by_header(self):
        """CANN 9.0 documents libascendcl.so as being on its way out."""
        runtime, compiler = self.halves(self.of_cann())
        part = {"acl/acl_op.h": "libacl_op_executor.so", "acl/acl_mdl.h": "libascend_dump.so"}
        for soname in ("libacl_rt.so", *part.values()):
            self.stub([f for f in runtime if part.get(f.header, "libacl_rt.so") == soname], soname)
        self.stub(compiler, "libacl_op_compiler.so")
        used = "used libacl_op_compiler.so libacl_op_executor.so libacl_rt.so libascend_dump.so\n"
        self.assertEqual(self.python(USE), used)
        body = USE + "torch.npu.init_dump(); torch.npu.finalize_dump(); print('dumped')"
        self.assertTrue(self.python(body).endswith("dumped\n"))

    def test_the_simulator_stays_closed(self):
        """Beside a CANN that answers, nothing of the simulator is loaded."""
        fake = FAKE.replace("DEVICES", "1").replace("CODE", "0")
        names = [f.name for f in self.of_cann() if f.required and f.name not in ("aclInit", "aclrtGetDeviceCount")]
        fake += "".join(f'extern "C" void {name}() {{}}\n' for name in names)
        source = self.home / "fake.cpp"
        source.write_text(fake)
        path = self.home / "lib64" / "libascendcl.so"
        subprocess.run([acl_stub.compiler(), "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
        body = "import torch\ntry: torch.ones(2, device='npu')\n"
        body += "except RuntimeError as error: print('507899' in str(error))\n"
        body += "print([line for line in open('/proc/self/maps') if 'ascend_sim' in line])"
        self.assertEqual(self.python(body), "True\n[]\n")


class TestGenerator(unittest.TestCase):
    """gen_acl.py: the table is complete, and a bad entry is named."""

    def generate(self, table):
        script = f"""
            import pathlib
            sys.path.insert(0, {str(acl.ACL)!r})
            import gen_acl
            try:
                print(len(gen_acl.read_table(pathlib.Path({table!r}))[1]))
            except ValueError as error:
                print(error)
        """
        return acl.run_script(script).stdout.strip()

    def test_a_bad_entry_is_named(self):
        head = "libraries: {x: {sonames: [libx.so]}}\ngroups:\n  - header: acl/x.h\n    library: x\n    functions:\n"
        cases = {
            "      - int32_t f(int a)\n": "1",
            "      - f\n": "not a C prototype",
            "      - int32_t f(int)\n": "cannot read the argument 'int'",
            "      - strange_t f(int a)\n": "strange_t",
            "      - int32_t f(int a)\n      - int32_t f(int b)\n": "f is listed twice",
            "      - {proto: int32_t f(int a), sincee: 5}\n": "sincee",
            "      - {proto: int32_t f(int a), since: soon}\n": "'soon' is no release",
            "      - int32_t f(int a)\nneeded: [g]\n": "needed: ['g'] are not in the table",
            "      - {proto: int32_t f(int a), since: unreleased}\nneeded: [f]\n": "f is needed, but CANN",
        }
        for text, expected in cases.items():
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as table:
                table.write(head + text)
                table.flush()
                self.assertIn(expected, self.generate(table.name), text)

    def test_output_is_stable(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(acl.ACL / "gen_acl.py"), folder]
            subprocess.run(command, check=True)
            before = {p.name: p.stat().st_mtime_ns for p in Path(folder).iterdir()}
            subprocess.run(command, check=True)
            self.assertEqual({p.name: p.stat().st_mtime_ns for p in Path(folder).iterdir()}, before)
            self.assertEqual(subprocess.run([*command, "--check"], check=False).returncode, 0)
            (Path(folder) / "sim_api.h").write_text("")
            self.assertEqual(subprocess.run([*command, "--check"], check=False, capture_output=True).returncode, 1)


if __name__ == "__main__":
    unittest.main()
