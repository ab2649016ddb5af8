# The operator support list of tools/op_coverage.py travels with the tool; its rows reach unsupported_op.xlsx.
"""The porting tool and the operator support list."""

import json
import os
import unittest

from transplant_case import ROOT, TransplantCase, convert, tool

CONTENT = {
    "ops": {
        "add": {"support": "native", "overloads": {"Tensor": "native"}},
        "linalg_qr": {"support": "fallback", "overloads": {"default": "fallback", "out": "fallback"}},
        "poisson": {"support": "missing", "overloads": {"default": "missing"}},
        "_ctc_loss": {"support": "fallback", "overloads": {"default": "fallback"}},
        "reflection_pad1d": {"support": "fallback", "overloads": {"default": "fallback"}},
        "im2col": {"support": "native", "overloads": {"default": "native"}},
    },
    "npu_ops": {},
    "apis": {
        "torch.nn.CTCLoss": {"ops": ["_ctc_loss"], "always": True},
        "torch.nn.functional.pad": {"ops": ["reflection_pad1d"], "always": False},
        "torch.nn.functional.unfold": {"ops": ["im2col"], "always": True},
    },
}
SCRIPT = """import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn import CTCLoss
q, r = torch.linalg.qr(x)
p = torch.poisson(x)
loss = nn.CTCLoss()
loss2 = CTCLoss(blank=1)
y = F.pad(x, (1, 1))
z = F.unfold(torch.add(x, x), 2)
"""
ROWS = [
    (5, "torch.linalg.qr", "fallback"),
    (6, "torch.poisson", "missing"),
    (7, "torch.nn.CTCLoss", "fallback"),
    (8, "torch.nn.CTCLoss", "fallback"),
    (9, "torch.nn.functional.pad", "fallback"),
]


class OperatorsTest(TransplantCase):
    def test_rows_of_the_workbook(self):
        from openpyxl import load_workbook

        listed = self.write("operators.json", json.dumps(CONTENT))
        source = self.write("in/net.py", SCRIPT)
        done = self.run_tool("-i", os.path.dirname(source), "-o", self.path("out"), "--operators", listed)
        self.assertEqual(done.returncode, 0, done.stderr)
        sheet = load_workbook(self.path("out", "in_msft", "unsupported_op.xlsx")).active
        rows = list(sheet.iter_rows(values_only=True))[1:]
        self.assertEqual([(row[1], row[2], row[3]) for row in rows], ROWS)
        self.assertIn("for some arguments", rows[-1][4])
        self.assertIn("_ctc_loss", rows[2][4])

    def test_import_alone_is_not_overlooked(self):
        # A file with nothing of CUDA in it takes the fast path, unless an operator of the list is named.
        support = tool("operators").Operators.from_content(CONTENT)
        _, report = convert("from torch.nn import CTCLoss\nloss = CTCLoss()\n", operators=support)
        self.assertEqual([use.api for use in report.unsupported], ["torch.nn.CTCLoss"])

    def test_shipped_list(self):
        operators = tool("operators")
        shipped = os.path.join(ROOT, "tools", "ms_fmk_transplt", "transplant", "operators.json")
        self.assertEqual(os.path.realpath(operators.default_path()), os.path.realpath(shipped))
        support = operators.load(shipped)
        self.assertIsNone(support.judge("torch.add"))
        self.assertIsNone(support.judge("torch.nn.functional.relu"))
        self.assertIsNone(support.judge("torch.nn.Conv2d"))
        for name in support.poor:
            if not name.startswith(("_", "linalg_", "fft_", "special_")):
                self.assertIn(support.judge(f"torch.{name}").support, ("fallback", "missing"))

    def test_list_of_the_documents(self):
        # docs/operators.md holds the same judgement as the JSON.
        operators = tool("operators")
        document = operators.load(os.path.join(ROOT, "docs", "operators.md"))
        self.assertEqual(document.poor, operators.load(operators.default_path()).poor)

    def test_bad_list(self):
        empty = self.write("operators.json", "{}")
        with self.assertRaisesRegex(ValueError, "holds no operator support list"):
            tool("operators").load(empty)


if __name__ == "__main__":
    unittest.main()
