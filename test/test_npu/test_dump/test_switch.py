"""USE_DUMP: what a build with and without it brings, with and without NPU."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

try:
    from tools.fork import base, grafts, overlay
    from tools.setup_helpers.env import BuildError, Switches, build_dir, extension_suffix

    BASE = build_dir() / "base"
except ImportError:
    BASE = ROOT / "none"


@unittest.skipUnless(BASE.is_dir(), "no base tree in BUILD_DIR: build through build.sh first")
class TestSwitch(unittest.TestCase):
    def setUp(self):
        self.site = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def lay(self, **switches):
        """Links the base tree and this build's Python files into a folder; returns the names of ours."""
        chosen = Switches.read({name: str(value) for name, value in switches.items()})
        files = overlay.collect(chosen, BASE, None)
        opened = {folder for name in files for folder in Path(name).parents} | {Path(".")}

        def link(folder):
            for entry in (BASE / folder).iterdir():
                place = folder / entry.name
                if place in opened:
                    (self.site / place).mkdir()
                    link(place)
                elif place.as_posix() not in files:
                    (self.site / place).symlink_to(entry)

        link(Path("."))
        for name, content in files.items():
            place = self.site / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
        return set(files)

    def run_python(self, *command):
        return subprocess.run(
            [sys.executable, *map(str, command)],
            capture_output=True,
            text=True,
            cwd=self.site,
            timeout=120,
            env={**os.environ, "PYTHONPATH": str(self.site)},
        )

    def test_gpu_build(self):
        """The guides' line for a GPU host (USE_NPU=0 USE_DUMP=1): the same Python code, run here on the CPU."""
        names = self.lay(USE_NPU=0, USE_DUMP=1)
        self.assertIn("torch/tools/operator_cmp/compare/msaccucmp.pyc", names)
        self.assertFalse([name for name in names if name.startswith(("torch/npu", "torch_npu"))])
        (self.site / "step.py").write_text(
            "import torch\n"
            "x = torch.ones(3, requires_grad=True)\n"
            "with torch.utils.dumper(use_dump=True, dump_path='./model_gpu.h5') as dump:\n"
            "    (x * 2).sum().backward()\n"
            "x.grad = None\n"
            "with torch.utils.dumper(use_dump=True, load_file_path='./model_gpu.h5', dump_path='./again.h5') as dump:\n"
            "    (x * 2).sum().backward()\n"
            "print(torch.__file__, hasattr(torch, 'npu'), dump.problems)\n"
        )
        done = self.run_python("step.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split(maxsplit=1), [str(self.site / "torch/__init__.py"), "False []\n"])
        home = self.site / "torch/tools/operator_cmp/compare"
        done = self.run_python(home / "msaccucmp.pyc", "compare", "-m", "again.h5", "-g", "model_gpu.h5")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_cuda_wheel_as_base(self):
        """A build for a GPU host may start from upstream's CUDA wheel; one with NPU may not."""
        version = "__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n"
        path = self.site / "torch-2.13.0+cu130.whl"
        with zipfile.ZipFile(path, "w") as out:
            out.writestr("torch/version.py", version)
            out.writestr(f"torch/_C{extension_suffix()}", "")
        environment = {"USE_NPU": "0", "USE_CUDA": "1", "USE_NCCL": "0", "BASE_WHEEL": str(path)}
        with mock.patch.dict(os.environ, environment):
            base.check(path)
            switches = Switches.read()
        self.assertEqual([notice.split()[0] for notice in switches.notices], ["USE_NCCL=0"])
        self.assertIn("USE_CUDA=1", switches.text())
        with mock.patch.dict(os.environ, USE_NPU="1"), self.assertRaisesRegex(BuildError, "CUDA build.*USE_NPU=0"):
            base.check(path)
        tree = self.site / "base"
        shutil.copytree(BASE / "torch" / "utils", tree / "torch" / "utils", ignore=lambda *_: ["data", "benchmark"])
        for name in ("__init__.py", "__config__.py"):
            shutil.copy(BASE / "torch" / name, tree / "torch" / name)
        (tree / "torch" / "version.py").write_text(version)
        text = grafts.grafted_files(tree, switches)["torch/version.py"].decode()
        self.assertIn("__version__ = '2.13.0+ascend'", text)
        self.assertIn("cuda: Optional[str] = '13.0'", text)

    def test_without(self):
        names = self.lay(USE_NPU=0, USE_DUMP=0)
        self.assertFalse([name for name in names if "dumper" in name or "msaccucmp" in name])
        done = self.run_python("-c", "import torch; torch.utils.dumper(use_dump=True)")
        self.assertRegex(
            done.stderr, r"RuntimeError: torch.utils.dumper is not in this build .*USE_DUMP=1 bash build.sh"
        )


if __name__ == "__main__":
    unittest.main()
