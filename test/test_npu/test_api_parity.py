"""tools/api_parity.py: every public name of torch.cuda is in torch.npu, or its absence has a reason."""

import json
import subprocess
import sys
from pathlib import Path

from common_utils import TestCase, run_tests

import torch

TOOL = Path(__file__).resolve().parents[2] / "tools" / "api_parity.py"


class TestApiParity(TestCase):
    def run_tool(self, *options):
        return subprocess.run([sys.executable, str(TOOL), *options], capture_output=True, text=True, timeout=120)

    def test_nothing_is_unexplained(self):
        result = self.run_tool("--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        answer = json.loads(result.stdout)
        self.assertEqual(answer["unexplained"], [])
        self.assertGreater(len(answer["present"]), 100)
        self.assertTrue(all(answer["not_applicable"].values()))
        self.check_absent(answer["not_applicable"])
        for name in ("Stream", "memory.memory_summary", "amp.autocast", "random.get_rng_state", "FloatTensor"):
            self.assertIn(name, answer["present"])

    def test_table(self):
        result = self.run_tool()
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"(?m)^set_device +present$")
        self.assertRegex(result.stdout, r"(?m)^nvtx +not applicable: \w+")
        self.assertRegex(result.stdout, r"\d+ present, \d+ not applicable, 0 unexplained\n$")

    def check_absent(self, names):
        # A name cannot be both missing for a reason and there, but for saying that reason.
        for name, reason in names.items():
            owner, _, leaf = name.rpartition(".")
            there = getattr(getattr(torch.npu, owner) if owner else torch.npu, leaf, None)
            if there is not None:
                with self.assertRaisesRegex(NotImplementedError, reason.partition(":")[0], msg=name):
                    there()


if __name__ == "__main__":
    run_tests()
