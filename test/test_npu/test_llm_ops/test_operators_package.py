"""torch.npu.operators as a whole: found when looked up, by every spelling, and documented."""

import re

from llm_ops_case import LlmOpsTestCase, run_in_process, run_tests

import torch
from torch.npu import operators
from torch.npu.operators._registration import FUNCTIONS


class TestOperatorsPackage(LlmOpsTestCase):
    def test_imported_when_looked_up(self):
        script = (
            "import sys, torch\n"
            "family = 'torch.npu.operators.routing'\n"
            "assert callable(torch.npu_moe_gating_top_k) and family not in sys.modules\n"
            "torch.ops.npu.npu_moe_gating_top_k.default\n"
            "assert family in sys.modules\n"
        )
        done = run_in_process(script)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_families_define_what_they_list(self):
        for family, names in operators.FAMILIES.items():
            for name in names:
                packet = getattr(torch.ops.npu, name)
                self.assertTrue(packet.overloads(), name)
            module = f"torch.npu.operators.{family}"
            self.assertEqual(sorted(n for n, f in FUNCTIONS.items() if f.__module__ == module), sorted(names))

    def test_documentation(self):
        for name in operators.OPERATORS:
            doc = getattr(torch, name).__doc__
            for word in (f"{name}(", "Args:", "Returns:"):
                self.assertIn(word, doc, name)
            packet = getattr(torch.ops.npu, name)
            for overload in packet.overloads():
                for argument in getattr(packet, overload)._schema.arguments:
                    self.assertRegex(doc, rf"(?m)^ +{re.escape(argument.name)}[,: ]", f"{name}: {argument.name}")

    def test_spellings(self):
        import torch_npu

        for name in operators.OPERATORS:
            self.assertTrue(callable(getattr(torch_npu, name)), name)
            self.assertIn(name, dir(torch.ops.npu))


if __name__ == "__main__":
    run_tests()
