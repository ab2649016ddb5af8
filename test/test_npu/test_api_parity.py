"""tools/api_parity.py: every public name of torch.cuda is in torch.npu, or its absence has a reason."""

import json
import subprocess
import sys
from pathlib import Path

from common_utils import TestCase, run_tests

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
        for name in ("Stream", "memory.memory_summary", "amp.autocast", "random.get_rng_state", "FloatTensor"):
            self.assertIn(name, answer["present"])

    def test_table(self):
        result = self.run_tool()
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"(?m)^set_device +present$")
        self.assertRegex(result.stdout, r"(?m)^nvtx +not applicable: \w+")
        self.assertRegex(result.stdout, r"\d+ present, \d+ not applicable, 0 unexplained\n$")

    def test_what_is_not_applicable_is_really_absent(self):
        import torch

        for name in json.loads(self.run_tool("--json").stdout)["not_applicable"]:
            with self.subTest(name=name):
                owner, _, leaf = name.rpartition(".")
                module = getattr(torch.npu, owner) if owner else torch.npu
                self.assertFalse(hasattr(module, leaf))


if __name__ == "__main__":
    run_tests()
