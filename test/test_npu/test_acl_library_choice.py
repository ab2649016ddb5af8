"""Which library stands behind the ABI: CANN where a card answers, else the simulator; or as ASCEND_SIMULATOR says."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import acl_library as acl

# A library that looks like CANN's: it counts devices, and says which it is.
FAKE = """
extern "C" int aclrtGetDeviceCount(unsigned* count) { *count = DEVICES; return CODE; }
extern "C" const char* aclrtGetSocName() { return "Ascend_fake"; }
extern "C" int aclInit(const char*) { return 507899; }
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
    def ask(self, **env):
        variables = {k: v for k, v in os.environ.items() if not k.startswith("ASCEND_")}
        result = subprocess.run(
            [sys.executable, "-c", ASK],
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
            subprocess.run(
                [compiler, "-shared", "-fPIC", "-o", f"{folder}/lib64/libascendcl.so", str(source)], check=True
            )
            stdout, _ = self.ask(ASCEND_HOME_PATH=folder)
            self.assertIn("lacks", stdout)
            self.assertIn("aclrtMalloc", stdout)


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
        head = "libraries: {x: {soname: libx.so}}\ngroups:\n  - header: acl/x.h\n    library: x\n    functions:\n"
        cases = {
            "      - int32_t f(int a)\n": "1",
            "      - f\n": "not a C prototype",
            "      - int32_t f(int)\n": "cannot read the argument 'int'",
            "      - strange_t f(int a)\n": "strange_t",
            "      - int32_t f(int a)\n      - int32_t f(int b)\n": "f is listed twice",
            "      - {proto: int32_t f(int a), sincee: 5}\n": "sincee",
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
