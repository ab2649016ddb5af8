"""Tuning: graphs of operators are written, the tool measures what they leave open, later processes use its findings."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

SCRIPT = """
import torch, torch.nn.functional as F
def work():
    torch.manual_seed(0)
    x, w = torch.randn(64, 96).npu(), torch.randn(80, 96).npu()
    image, filters = torch.randn(4, 6, 14, 14).npu(), torch.randn(8, 6, 3, 3).npu()
    return F.linear(x, w), F.conv2d(image, filters, padding=1)
"""
PRINT_SUMS = SCRIPT + "print([t.double().sum().item() for t in work()]); print(torch._C._npu_knowledge())"


@functools.cache
def state() -> dict:
    """What this process knows of its own base: where it was measured holds for all."""
    return json.loads(torch._C._npu_knowledge())


class AoeCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.graphs, self.bank = self.folder / "graphs", self.folder / "bank"
        self.graphs.mkdir()
        self.bank.mkdir()

    def run_python(self, *command: str, status: int = 0, **variables: str) -> str:
        """Standard output and log lines."""
        own = {
            "TUNE_BANK_PATH": str(self.bank),
            "ASCEND_PROCESS_LOG_PATH": str(self.folder / "log"),
            "ASCEND_SLOG_PRINT_TO_STDOUT": "1",
        }
        result = subprocess.run(
            [sys.executable, *command], env=os.environ | own | variables, capture_output=True, text=True, timeout=240
        )
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def write_graphs(self, script: str = SCRIPT + "work(); torch.npu.synchronize()") -> list[Path]:
        self.run_python("-c", f"import torch\ntorch.npu.set_aoe({str(self.graphs)!r})\n" + script)
        return sorted(self.graphs.glob("*.txt"))

    def tune(self, **variables: str) -> str:
        return self.run_python("-m", "torch.npu.aoe", "--job_type=2", f"--model_path={self.graphs}", **variables)

    def base(self) -> Path:
        return self.bank / state()["file"].split("/")[-2] / "knowledge.json"

    def identities(self, *types: str) -> dict[str, str]:
        """Type -> identity of its graph."""
        files = {t: next(self.graphs.glob(f"{t}_*.txt")) for t in types}
        return {t: json.loads(torch._C._npu_tuneGraph(str(f), 0))["identity"] for t, f in files.items()}

    def write_base(self, choices: dict[str, str], **changes: object) -> Path:
        file = self.base()
        file.parent.mkdir(parents=True, exist_ok=True)
        operators = {identity: {"choice": choice} for identity, choice in choices.items()}
        file.write_text(json.dumps(state()["place"] | {"operators": operators} | changes))
        return file


class GraphsTest(AoeCase):
    def test_each_operator_has_one_file(self):
        torch.ones(1, device="npu")
        files = self.write_graphs()
        types = [f.name.rsplit("_", 1)[0] for f in files]
        self.assertEqual([t for t in types if t in ("MatMulV2", "Conv2D")], ["Conv2D", "MatMulV2"])
        graph = json.loads(files[types.index("MatMulV2")].read_text())
        self.assertEqual([entry["dims"] for entry in graph["inputs"]][:2], [[64, 96], [80, 96]])
        self.assertEqual(graph["outputs"][0]["dims"], [64, 80])
        self.assertIn("transpose_x2", graph["attributes"])
        self.assertEqual(self.write_graphs(SCRIPT + "work(); work(); torch.npu.synchronize()"), files)

    def test_misuse(self):
        with self.assertRaisesRegex(TypeError, "dump_path is a str"):
            torch.npu.set_aoe(None)
        with self.assertRaisesRegex(ValueError, "no directory"):
            torch.npu.set_aoe(str(self.folder / "missing"))
        tool = ("-m", "torch.npu.aoe")
        self.assertIn("no graphs", self.run_python(*tool, "-j", "2", f"--model_path={self.graphs}", status=1))
        self.assertIn("no folder", self.run_python(*tool, "-j", "2", "--model_path=/missing", status=2))
        self.assertIn("subgraphs", self.run_python(*tool, "-j", "1", f"--model_path={self.graphs}", status=2))

    def test_a_file_that_is_no_graph_is_named(self):
        self.write_graphs()
        good = next(self.graphs.glob("MatMulV2_*.txt"))
        text = good.read_text()
        bad = self.graphs / "bad.txt"
        for broken in (
            "",
            "{",
            "[1]",
            '{"graph": 1}',
            text.replace('"graph": 1', '"graph": 9'),
            text[: len(text) // 2],
        ):
            bad.write_text(broken)
            with self.assertRaisesRegex(RuntimeError, "bad.txt"):
                torch._C._npu_tuneGraph(str(bad), 0)
        for name in ("attribute_bytes", "type"):
            graph = json.loads(text)
            graph[name] = graph[name][:-1] + "?"
            bad.write_text(json.dumps(graph))
            with self.assertRaises(RuntimeError):
                torch._C._npu_tuneGraph(str(bad), 0)


class TuningTest(AoeCase):
    def test_the_tool_writes_a_base_that_the_next_process_uses(self):
        files = self.write_graphs()
        output = self.tune()
        self.assertIn(f"{len(files)} graphs: 2 tuned", output)
        base = json.loads(self.base().read_text())
        self.assertEqual(sorted(identity.split(",")[0] for identity in base["operators"]), ["Conv2D", "MatMulV2"])
        for entry in base["operators"].values():
            self.assertIn(entry["choice"], entry["microseconds"])
        output = self.run_python("-c", PRINT_SUMS)
        state = json.loads(output.splitlines()[-1])
        self.assertEqual((state["status"], state["operators"], state["used"]), ("read", 2, 2))
        self.assertIn("0 tuned, 0 of them faster; 2 known before", self.tune())
        self.assertIn("2 tuned", self.tune(REPEAT_TUNE="True"))

    def test_all_ways_agree(self):
        script = """
import torch, torch.nn.functional as F
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for channels, size, kernel, options in ((3, 20, 3, {"padding": 1}), (32, 9, 3, {"stride": 2, "dilation": 2}),
                                            (64, 8, 1, {}), (256, 5, 3, {"padding": 1})):
        x = torch.randn(4, channels, size, size, dtype=dtype).npu().requires_grad_()
        w = torch.randn(24, channels, kernel, kernel, dtype=dtype).npu().requires_grad_()
        F.conv2d(x, w, **options).sum().backward()
    a, b = torch.randn(70, 130, dtype=dtype).npu().requires_grad_(), torch.randn(130, 90, dtype=dtype).npu()
    (a @ b.requires_grad_()).sum().backward()
    F.linear(a, torch.randn(50, 130, dtype=dtype).npu(), torch.randn(50, dtype=dtype).npu())
torch.npu.synchronize()
"""
        open_to_choice = 0
        for file in self.write_graphs(script):
            result = json.loads(torch._C._npu_tuneGraph(str(file), 1))
            if result["choices"] > 1:
                open_to_choice += 1
                self.assertEqual(result["differs"], [], file.name)
                self.assertEqual(len(result["ways"]), result["choices"], file.name)
        self.assertGreater(open_to_choice, 30)

    def test_a_choice_is_taken(self):
        self.write_graphs()
        plain = self.run_python("-c", PRINT_SUMS, ENABLE_TUNE_BANK="False").splitlines()
        self.assertEqual(json.loads(plain[-1])["status"], "off")
        found = self.identities("MatMulV2", "Conv2D")
        self.write_base({found["MatMulV2"]: "onednn:one", found["Conv2D"]: "rows:one"})
        output = self.run_python("-c", PRINT_SUMS, ASCEND_GLOBAL_LOG_LEVEL="1")
        self.assertIn("the knowledge base chooses onednn:one for MatMulV2", output)
        self.assertIn("the knowledge base chooses rows:one for Conv2D", output)
        lines = [line for line in output.splitlines() if not line.startswith("[INFO]")]
        for tuned, untuned in zip(json.loads(lines[0]), json.loads(plain[0]), strict=True):
            self.assertAlmostEqual(tuned, untuned, delta=1e-3 * (1 + abs(untuned)))

    def test_a_base_that_is_no_use_is_told_once(self):
        self.write_graphs()
        found = self.identities("MatMulV2")
        plain = self.run_python("-c", PRINT_SUMS, ENABLE_TUNE_BANK="False").splitlines()[0]
        choice = {found["MatMulV2"]: "onednn:one"}
        for changes, status in (
            ({"cpu": "another"}, "foreign"),
            ({"torch": "1.8.1"}, "foreign"),
            ({"threads": 333}, "foreign"),
            ({"format": 99}, "broken"),
            ({"operators": [1]}, "broken"),
            ({"operators": {"MatMulV2": {}}}, "broken"),
        ):
            file = self.write_base(choice, **changes)
            output = self.run_python("-c", PRINT_SUMS, ASCEND_GLOBAL_LOG_LEVEL="2").splitlines()
            self.assertEqual(sum(f"the knowledge base {file} is not used" in line for line in output), 1, output)
            self.assertIn(plain, output)
            self.assertEqual(json.loads(output[-1])["status"], status)
        for text in ("", "{", "null", "\0\1"):
            file.write_text(text)
            output = self.run_python("-c", PRINT_SUMS, ASCEND_GLOBAL_LOG_LEVEL="2").splitlines()
            self.assertEqual(json.loads(output[-1])["status"], "broken")
            self.assertIn(plain, output)
        # The tool makes a new one of it.
        self.assertIn("is replaced", self.tune())
        self.assertEqual(json.loads(self.run_python("-c", PRINT_SUMS).splitlines()[-1])["status"], "read")

    def test_choices_that_an_operator_does_not_have_are_passed_over(self):
        self.write_graphs()
        found = self.identities("MatMulV2", "Conv2D")
        self.write_base({found["MatMulV2"]: "rows:one", found["Conv2D"]: "warp:9", "Add": "only:team"})
        plain = self.run_python("-c", PRINT_SUMS, ENABLE_TUNE_BANK="False").splitlines()
        self.assertEqual(self.run_python("-c", PRINT_SUMS).splitlines()[0], plain[0])

    def test_processes_that_write_at_once(self):
        file = self.base()
        body = """
import sys
from pathlib import Path
from torch.npu import aoe
for i in range(20):
    aoe.add_to_base(Path(sys.argv[1]), {"format": 1}, {f"{sys.argv[2]} {i}": {"choice": "default"}})
"""
        children = [
            subprocess.Popen([sys.executable, "-c", body, str(file), str(child)], stderr=subprocess.PIPE)
            for child in range(4)
        ]
        for child in children:
            self.assertEqual(child.wait(timeout=120), 0)
            child.stderr.close()
        self.assertEqual(len(json.loads(file.read_text())["operators"]), 80)
        self.assertEqual([f.name for f in file.parent.iterdir() if f.suffix == ".tmp"], [])


if __name__ == "__main__":
    unittest.main()
