"""examples/libraries: how results are compared and written down, and the libraries that are installed."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType
from unittest import mock

from common_utils import TestCase, run_tests

import torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "libraries"
# Quick, together some 25 s: these checks of the libraries that are installed; the first four come with
# requirements-libraries.txt or the wheel, the others with requirements-libraries-all.txt.
QUICK = {
    "safetensors": [],
    "torch_npu": ["a decoder's step", "top_k_top_p"],
    "torchvision": ["nms"],
    "peft": ["LoRA: merged"],
    "ignite": ["trainer, evaluator"],
    "kornia": ["morphology"],
    "open_clip": ["zero-shot"],
    "torch_geometric": ["GCNConv, training"],
    "torchaudio": ["resampling"],
    "torchmetrics": ["retrieval"],
}


def load(name: str) -> ModuleType:
    """A module of the example, by a name that no other test's has."""
    spec = importlib.util.spec_from_file_location(f"libraries_{name}", EXAMPLE / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    with mock.patch.dict(os.environ):
        spec.loader.exec_module(module)
    return module


side_by_side, run_all = load("side_by_side"), load("run_all")


class TestComparing(TestCase):
    def compare(self, run, **options) -> side_by_side.Row:
        with mock.patch("traceback.print_exc"):
            return side_by_side.compare(side_by_side.Check("it", run, **options))

    def test_same_numbers(self):
        row = self.compare(lambda device: [torch.arange(4.0, device=device).sum(), torch.ones(2, device=device)])
        self.assertEqual((row.difference, row.failure, row.on_cpu), (0.0, "", ()))
        self.assertGreater(row.npu_ms, 0)

    def test_each_tensor_has_a_tolerance_of_its_own(self):
        def run(device):
            return [
                torch.full((2,), 1e6, device=device),
                torch.full((2,), 1.0 if device == "cpu" else 1.1, device=device),
            ]

        row = self.compare(run)
        self.assertAlmostEqual(row.difference, 0.1, places=5)
        self.assertIn("differs by 1.0e-01, more than 0.0001", row.failure)
        self.assertTrue(self.compare(run, tolerance=0.2).fine)

    def test_not_a_number_differs(self):
        row = self.compare(lambda device: [torch.tensor(1.0 if device == "cpu" else float("nan"), device=device)])
        self.assertFalse(row.fine)

    def test_failures(self):
        row = self.compare(lambda device: [torch.ones(2 if device == "cpu" else 3, device=device)])
        self.assertIn("shapes [(3,)] on npu, [(2,)] on the CPU", row.failure)
        self.assertIn("nothing was computed on npu", self.compare(lambda device: [1.0]).failure)
        self.assertIn("ZeroDivisionError", self.compare(lambda device: [1 / 0]).failure)

    def test_limits_must_be_true(self):
        def refuse(device):
            if device == "npu":
                raise RuntimeError("no")
            return [1.0]

        self.assertTrue(self.compare(refuse, limit="its own").fine)
        works = self.compare(lambda device: [torch.ones(1, device=device)], limit="its own")
        self.assertEqual(works.failure, "works, although it is listed as a limit")

    def test_what_ran_on_the_cpu_is_told(self):
        def run(device):
            with mock.patch.object(torch.npu, "fallback_stats", lambda: {"aten::x": 1}):
                return [torch.ones(1, device=device)]

        with mock.patch.object(torch.npu, "fallback_stats", lambda: {"aten::x": 1}):
            self.assertEqual(self.compare(run).on_cpu, ("aten::x",))


class TestDocument(TestCase):
    def test_lines_of_scripts_that_did_not_run_stay(self):
        def rows(difference, failure="", limit=""):
            row = {"what": "it", "difference": difference, "cpu_ms": 4.0, "npu_ms": 6.0}
            return {"versions": {"a": "1"}, "rows": [row | {"failure": failure, "limit": limit, "on_cpu": ["aten::x"]}]}

        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "libraries.md"
            document.write_text(f"before\n{run_all.BEGIN}| a |\n| --- |\n{run_all.END}after\n")
            with mock.patch.object(run_all, "DOCUMENT", document):
                run_all.write_document({"b": rows(1e-6), "a": rows(0.0)})
                run_all.write_document({"b": rows(None, failure="broken"), "c": rows(None, limit="its own")})
            lines = document.read_text().splitlines()
        self.assertEqual((lines[0], lines[-1]), ("before", "after"))
        self.assertIn("| a | a 1 | it | the CPU's numbers | 1.50 | `aten::x` |", lines)
        self.assertIn("| b | a 1 | it | **broken** | 1.50 | `aten::x` |", lines)
        self.assertIn("| c | a 1 | it | refuses: its own | 1.50 | `aten::x` |", lines)
        self.assertEqual(len(lines), 9)

    def test_every_script_of_the_document_is_there(self):
        text = run_all.DOCUMENT.read_text().split(run_all.BEGIN)[1].split(run_all.END)[0]
        named = {line.split("|")[1].strip() for line in text.splitlines()[2:]}
        self.assertEqual(named - set(run_all.scripts()), set())


class TestScripts(TestCase):
    def run_script(self, name: str, *options: str) -> dict:
        """What a script has found."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.json"
            command = [sys.executable, str(EXAMPLE / f"use_{name}.py"), "--json", str(file), *options]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-4000:])
            return json.loads(file.read_text())

    def test_without_the_libraries_every_script_is_left_out(self):
        nowhere = mock.patch.object(run_all.importlib.metadata, "version", side_effect=PackageNotFoundError)
        with nowhere, mock.patch("subprocess.run", side_effect=AssertionError("a script was started")):
            self.assertEqual([name for name in run_all.scripts() if run_all.run(name, True, 1) is not None], [])

    def test_quick_ones(self):
        for name, only in QUICK.items():
            if run_all.missing(name):
                continue
            with self.subTest(library=name):
                found = self.run_script(name, *(["--only", *only] if only else []))
                self.assertGreaterEqual(len(found["rows"]), max(len(only), 1))
                self.assertEqual([row["on_cpu"] for row in found["rows"]], [[]] * len(found["rows"]))

    @unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS") == "1", "ten minutes; NPU_SLOW_TESTS=1 runs it")
    def test_every_library_that_is_installed(self):
        for name in run_all.scripts():
            if not run_all.missing(name):
                with self.subTest(library=name):
                    self.run_script(name)


if __name__ == "__main__":
    run_tests()
