"""Libraries that train on several devices by themselves: losses of a tiny model on two, beside one process on the CPU.

NPU_SLOW_TESTS=1 runs it; a library that is not installed is skipped. docs/distributed.md says what was tried.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_NPU
num_machines: 1
num_processes: 2
machine_rank: 0
mixed_precision: 'no'
use_cpu: false
"""


def needs(name):
    return unittest.skipUnless(importlib.util.find_spec(name), f"needs {name}: docs/distributed.md says how")


@unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS") == "1", "slow: set NPU_SLOW_TESTS=1")
class TestLibraries(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def python(self, *command, **env):
        scripts = os.path.dirname(sys.executable)  # accelerate calls its own launcher by name
        env = {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"} | env
        env |= {"ASCEND_SIM_DEVICE_COUNT": "2", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            env=os.environ | env,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout[-8000:])
        return done.stdout

    def train(self, launcher, *arguments, **env):
        """The result of a library under `python -m launcher`, compared with that of the CPU."""
        self.python(HERE / "library_rank.py", "plain", "plain.json")
        expected = json.loads((self.folder / "plain.json").read_text())["losses"]
        library, *stage = arguments
        self.python("-m", *launcher, HERE / "library_rank.py", library, "result.json", *stage, **env)
        found = json.loads((self.folder / "result.json").read_text())
        self.assertEqual((found["device"], found["backend"]), ("npu", "hccl"))
        self.assertEqual(len(found["losses"]), len(expected))
        for got, wanted in zip(found["losses"], expected, strict=True):
            self.assertLess(abs(got - wanted), 1e-4 * wanted, (found, expected))

    torchrun = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2")

    @needs("accelerate")
    def test_accelerate_launch(self):
        (self.folder / "two.yaml").write_text(ACCELERATE)
        self.train(("accelerate.commands.launch", "--config_file", "two.yaml"), "accelerate")

    @needs("accelerate")
    def test_accelerate_test(self):
        (self.folder / "two.yaml").write_text(ACCELERATE)
        command = "from accelerate.commands.accelerate_cli import main; main()"
        told = self.python("-c", command, "test", "--config_file", "two.yaml")
        self.assertIn("Test is a success!", told)

    @needs("transformers")
    def test_transformers_trainer(self):
        self.train(self.torchrun, "transformers")

    @needs("lightning")
    def test_lightning_ddp(self):
        self.train(self.torchrun, "lightning")

    @needs("deepspeed")
    def test_deepspeed_zero(self):
        for stage in (1, 2, 3):
            with self.subTest(stage=stage):
                # Without a toolkit its builder looks for a variable that is not set; any folder will do.
                home = os.environ.get("ASCEND_HOME_PATH", str(self.folder))
                self.train(self.torchrun, "deepspeed", stage, ASCEND_HOME_PATH=home)


if __name__ == "__main__":
    unittest.main()
