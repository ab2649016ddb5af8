"""tools/op_coverage.py: the operator support list is that of this build, and a profile is judged by it."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from common_utils import TestCase, run_tests

import torch

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "op_coverage.py"


class TestOpCoverage(TestCase):
    def run_tool(self, *options, text=None):
        command = [sys.executable, str(TOOL), *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, input=text)

    def judged(self, text):
        done = self.run_tool("--from-profile", "-", text=text)
        return done.returncode, done.stdout

    def setUp(self):
        self.content = json.loads((ROOT / "tools" / "ms_fmk_transplt" / "transplant" / "operators.json").read_text())

    def poor(self):
        names = [name for name, op in self.content["ops"].items() if op["support"] in ("fallback", "missing")]
        return names[0] if names else self.skipTest("every operator is supported")

    def test_list_is_up_to_date(self):
        done = self.run_tool("--check")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_levels_are_those_of_the_dispatcher(self):
        ops = self.content["ops"]
        self.assertEqual(ops["add"]["overloads"]["Tensor"], "native")
        self.assertEqual(ops["relu"]["support"], "native")
        self.assertEqual(ops["square"]["support"], "composite")
        self.assertNotIn("cudnn_batch_norm", ops)
        self.assertNotIn("to_sparse", ops)
        for name, op in ops.items():
            for overload, level in op["overloads"].items():
                full = f"aten::{name}" + ("" if overload == "default" else f".{overload}")
                has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(full, "PrivateUse1")
                on_host = level == "fallback" and "/Fallback.cpp" in torch._C._dispatch_dump(full)
                self.assertTrue(level == "native" or not has_kernel or on_host, full)

    def test_profiles_that_are_none(self):
        with tempfile.TemporaryDirectory() as folder:
            junk, deep = Path(folder, "junk"), Path(folder, "deep")
            junk.write_bytes(b"\xff\xfe\x00")
            deep.write_text("[" * 100000)
            for path, reason in (
                (junk, "not a text in UTF-8"),
                (deep, "no operator names found"),
                (Path(folder), "Is a directory"),
                (Path(folder, "nope"), "No such file"),
            ):
                done = self.run_tool("--from-profile", str(path))
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(f"{path}: {reason}", done.stderr)
        self.assertEqual(self.judged('[1, null, {"name": 5}]')[0], 2)

    def test_document_names_every_operator(self):
        text = (ROOT / "docs" / "operators.md").read_text()
        for name in self.content["ops"]:
            self.assertIn(f"| `{name}` |", text)
        self.assertRegex(text, r"\| `mm` \| native \|( native \|)? float int complex \|")

    def test_profile_table(self):
        # The guide's way: profile one step on the CPU, print the table.
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
        with torch.autograd.profiler.profile() as prof:
            net(torch.randn(1, 3, 8, 8)).sum().backward()
        status, text = self.judged(str(prof.key_averages().table(sort_by="self_cpu_time_total")))
        self.assertEqual(status, 0, text)
        self.assertIn("0 not supported on npu", text)

    def test_profile_names_what_is_not_supported(self):
        poor = self.poor()
        for text in (
            f"aten::add\naten::{poor}\n",
            f"add\n{poor}\n",
            json.dumps(["aten::add.Tensor", f"aten::{poor}"]),
            json.dumps({"aten::add": 3, f"aten::{poor}": 1}),
            json.dumps({"traceEvents": [{"name": "aten::add", "ph": "X"}, {"name": f"aten::{poor}", "ph": "X"}]}),
        ):
            status, answer = self.judged(text)
            self.assertEqual(status, 1, f"{text}\n{answer}")
            self.assertIn("2 operators, 1 not supported on npu", answer)
            self.assertIn(f"{poor}: ", answer)

    def test_trace_file_of_the_profiler(self):
        with torch.autograd.profiler.profile() as prof:
            torch.ones(3).add(1).square()
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            prof.export_chrome_trace(str(trace))
            done = self.run_tool("--from-profile", str(trace))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_names_that_are_none(self):
        self.assertEqual(self.run_tool("--from-profile", "-", text="12 34\n").returncode, 2)
        status, text = self.judged("aten::add\naten::mkldnn_convolution\naten::nonesuch\n")
        self.assertEqual(status, 0)
        self.assertIn("the CPU's own kernels, npu takes others: aten::mkldnn_convolution", text)
        self.assertIn("no aten operators: aten::nonesuch", text)


if __name__ == "__main__":
    run_tests()
