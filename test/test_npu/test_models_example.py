"""examples/models: the list of networks, and their training on npu against the CPU's from the same state.

Three networks run by default, all of them and the lessons on real data with NPU_SLOW_TESTS=1 (about twenty minutes; the
lessons need examples/models/requirements.txt). The scripts run in processes of their own, since they import each other
by short names.
"""

import importlib.util
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import yaml
from common_utils import TestCase, run_tests

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
SLOW = os.environ.get("NPU_SLOW_TESTS") == "1"
TORCHVISION = importlib.util.find_spec("torchvision") is not None
MISSING = [name for name in ("sklearn", "skimage") if importlib.util.find_spec(name) is None]


def run(script: str, *arguments: str, timeout: int = 300, status: int | None = 0) -> str:
    """What a script of the folder prints; ``status`` is the exit status it must have, None for any."""
    done = subprocess.run(
        [sys.executable, MODELS / script, *arguments], capture_output=True, text=True, timeout=timeout
    )
    if status is not None and done.returncode != status:
        raise AssertionError(f"{script} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


@unittest.skipUnless(TORCHVISION, "torchvision is not installed: pip install --no-deps torchvision==0.28.0")
class TestModels(TestCase):
    def check_rows(self, rows: list[dict], steps: int):
        for row in rows:
            with self.subTest(row["name"]):
                self.assertEqual((row["failure"], row["fallbacks"]), ("", {}))
                self.assertEqual(len(row["npu"]["losses"]), steps)
                if "spread" in row:  # the network magnifies rounding
                    self.assertLessEqual(max(row["spread"]["npu"]), max(row["spread"]["allowed"]))
                else:
                    self.assertLess(row["loss_error"], 1e-3)

    def test_three_networks_compute_what_the_cpu_computes(self):
        names = ["PNet", "GRU", "SqueezeNet1_1"]
        options = [part for name in names for part in ("--only", name)]
        rows = json.loads(run("run_all.py", "--steps", "3", "--json", *options).splitlines()[-1])
        self.assertEqual([row["name"] for row in rows], names)
        self.check_rows(rows, 3)
        for row in rows:
            self.assertGreater(len(set(row["npu"]["losses"])), 1)  # it does learn something

    def test_a_fault_is_no_spread(self):
        # The same losses are within the CPU's spread, losses that are 1e-3 off are not.
        code = (
            "import copy, functools, detection, harness, spread\n"
            "make = functools.partial(harness.make, detection.NETWORKS, 'pnet')\n"
            "task = make()\n"
            "cpu = harness.train(task, task.model, 'cpu', 2)\n"
            "wrong = copy.deepcopy(cpu)\n"
            "wrong.losses[1] *= 1.001\n"
            "print([spread.own_spread(make, 2, cpu, npu).explains(1) for npu in (cpu, wrong)])\n"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=MODELS, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.stdout.strip(), "[True, False]", done.stderr)

    @unittest.skipUnless(SLOW, "NPU_SLOW_TESTS=1: minutes")
    def test_all_networks(self):
        rows = json.loads(
            run("run_all.py", "--steps", "3", "--listed", "all", "--json", timeout=3600, status=None).splitlines()[-1]
        )
        self.assertEqual(sum("guide" in row["listed"] for row in rows), 55)
        self.check_rows(rows, 3)

    @unittest.skipUnless(SLOW, "NPU_SLOW_TESTS=1: minutes")
    def test_mixed_precision(self):
        for network in ("resnet18", "vgg11_bn", "mobilenet_v2"):
            text = run("classification.py", "--network", network, "--steps", "3", "--amp")
            self.assertRegex(text, r"step   2  loss \d+\.\d+ .*\nevaluation: accuracy")

    @unittest.skipUnless(SLOW, "NPU_SLOW_TESTS=1: minutes")
    @unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}: pip install -r examples/models/requirements.txt")
    def test_networks_learn_real_data(self):
        rows = json.loads(run("learn.py", "--json", timeout=3600, status=None).splitlines()[-1])
        self.assertEqual(len(rows), 6)
        for row in rows:
            with self.subTest(row["network"]):
                self.assertTrue(row["enough"], row)


class TestList(TestCase):
    """What needs no device."""

    def setUp(self):
        self.networks = yaml.safe_load((MODELS / "networks.yaml").read_text())["networks"]

    def test_list(self):
        guide = [entry["name"] for entry in self.networks if "guide" in entry["listed"]]
        self.assertEqual(len(guide), 55)
        self.assertEqual((guide[0], guide[-1]), ("3D AttentionNet", "Wide_ResNet50_2"))
        names = [entry["name"].lower() for entry in self.networks]
        self.assertEqual(len(names), len(set(names)))

    @unittest.skipUnless(TORCHVISION, "torchvision is not installed")
    def test_every_entry_has_a_task(self):
        self.assertEqual(len(run("run_all.py", "--list", "--listed", "all").splitlines()), len(self.networks))

    def test_table_covers_the_list(self):
        table = (MODELS.parents[1] / "docs" / "networks.md").read_text()
        for entry in (entry for entry in self.networks if "guide" in entry["listed"]):
            self.assertIn(f"| {entry['name']} | `{entry['script']} --network {entry['network']}` |", table)


if __name__ == "__main__":
    run_tests()
