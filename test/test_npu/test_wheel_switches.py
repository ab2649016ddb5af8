"""Each switch of the build changes the wheel: DEBUG, USE_NPU, USE_HCCL, USE_DUMP, USE_DISTRIBUTED, BUILD_TEST.

Wheels are written from the base tree and libraries that the build left in BUILD_DIR. A whole debug build takes
minutes; it runs with NPU_SLOW_TESTS=1.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.fork import wheel  # noqa: E402
from tools.setup_helpers import cmake  # noqa: E402
from tools.setup_helpers.env import Switches, build_dir  # noqa: E402

BASE = build_dir() / "base"
# The line that the guides print for a build without NPU.
GPU_LINE = (
    "DEBUG=0 USE_DISTRIBUTED=1 USE_HCCL=0 USE_NCCL=0 USE_MKLDNN=0 USE_CUDA=1 "
    "USE_NPU=0 BUILD_TEST=0 USE_NNPACK=0 USE_DUMP=1"
)


def run(code, *path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=path[0], timeout=120
    )


@unittest.skipUnless(BASE.is_dir(), "no base tree in BUILD_DIR: build through build.sh first")
class TestSwitches(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, **switches):
        """The wheel that these switches make."""
        chosen = Switches.read({name: str(value) for name, value in switches.items()})
        libraries = cmake.library_dir(Switches.read({})) if chosen["USE_NPU"] else None
        return zipfile.ZipFile(self.enterContext(open(wheel.write(chosen, BASE, libraries, self.folder), "rb")))

    def test_all_on(self):
        names = set(self.write().namelist())
        wanted = {"torch/npu/__init__.py", "torch_npu/__init__.py", "torch/include/c10/npu/NPUStream.h"}
        wanted |= {f"torch/lib/{name}" for name in ("libc10_npu.so", "libtorch_npu.so", "ascend_sim/libascendcl.so")}
        self.assertEqual(wanted - names, set())
        self.assertEqual([name for name in names if name.startswith(("test/", "torch/test/test_npu", "tools/"))], [])

    def test_build_test_packs_the_tests(self):
        self.assertTrue("torch/test/test_npu/test_wheel_switches.py" in self.write(BUILD_TEST=1).namelist())

    def test_recorded(self):
        for name, value in (("USE_HCCL", 0), ("USE_DUMP", 0), ("USE_DISTRIBUTED", 0), ("DEBUG", 1)):
            text = self.write(**{name: value}).read("torch/version.py").decode()
            self.assertRegex(text, rf"ascend_switches = '.*\b{name}={value}\b")
            self.assertIn(f"debug = {name == 'DEBUG'}\n", text)

    def test_use_dump_off_leaves_the_dumper_out(self):
        self.assertFalse([name for name in self.write(USE_DUMP=0).namelist() if name.startswith("torch/utils/dumper")])

    def test_equal_inputs_are_not_written_again(self):
        before = Path(self.write().fp.name).stat()
        after = Path(self.write().fp.name).stat()
        self.assertEqual(before.st_mtime_ns, after.st_mtime_ns)

    def test_without_npu_and_distributed(self):
        # The guides' line for a build without NPU, and USE_DISTRIBUTED=0 besides, so that one wheel shows both.
        switches = {**dict(pair.split("=") for pair in GPU_LINE.split()), "USE_DISTRIBUTED": "0"}
        done = subprocess.run(
            [sys.executable, "setup.py", "build", "bdist_wheel"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **switches, "DIST_DIR": str(self.folder)},
            timeout=300,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = re.findall(r"note: (\w+)=\d has no effect", done.stdout)
        self.assertEqual(told, ["USE_CUDA", "USE_MKLDNN", "USE_NNPACK"])
        (made,) = self.folder.glob("*.whl")
        self.assertEqual(made.name, wheel.wheel_name())
        site = self.folder / "site-packages"
        with zipfile.ZipFile(made) as archive:
            self.assertFalse([n for n in archive.namelist() if "npu" in n.split("/")[1:2] or n.startswith("torch_npu")])
            archive.extractall(site)
        done = run(
            """
import torch, torch.distributed
assert torch.__file__.startswith(__import__("os").environ["PYTHONPATH"])
try:
    torch.device("npu")
except RuntimeError as error:
    print(str(error)[:30])
print(torch.distributed.is_available(), torch.ones(2).sum().item(), hasattr(torch, "npu"))
print(torch.nn.Linear(2, 2)(torch.ones(1, 2)).shape)
""",
            site,
        )
        self.assertEqual(done.stderr, "")
        self.assertEqual(
            done.stdout.splitlines(), ["Expected one of cpu, cuda, ipu", "False 2.0 False", "torch.Size([1, 2])"]
        )

    def test_debug_compiles_with_assertions_and_debug_information(self):
        for value, wanted, unwanted in ((0, "-DNDEBUG", "-g"), (1, "-g", "-DNDEBUG")):
            folder = cmake.configure(Switches.read({"DEBUG": str(value)}), BASE / "torch")
            commands = json.loads((folder / "compile_commands.json").read_text())
            self.assertTrue(commands)
            for command in commands:
                words = command["command"].split()
                self.assertIn(wanted, words)
                self.assertNotIn(unwanted, words)

    @unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS") == "1", "slow: NPU_SLOW_TESTS=1 builds a whole debug wheel")
    def test_debug_wheel(self):
        environment = {**os.environ, "DEBUG": "1", "DIST_DIR": str(self.folder)}
        command = [sys.executable, "setup.py", "build", "bdist_wheel"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        (made,) = self.folder.glob("*.whl")
        with zipfile.ZipFile(made) as archive:
            library = archive.extract("torch/lib/libc10_npu.so", self.folder)
        sections = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
        self.assertIn(".debug_info", sections)


if __name__ == "__main__":
    unittest.main()
