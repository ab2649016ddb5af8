"""python -m torch.npu.analyze: planted problems are found, a clean script gets no finding, pages and comparisons."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import prof_scripts  # noqa: E402
import several_devices  # noqa: E402, F401
from common_utils import TestCase, run_tests  # noqa: E402

from torch.npu._profile import cost, events, findings, report, roofline  # noqa: E402
from torch.npu._profile.events import Task  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.texts.append(data)


class TestFindings(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = Path(tempfile.mkdtemp())

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)
        super().tearDownClass()

    def report_of(self, kind: type) -> dict:
        path = self.folder / f"{kind.__name__}.json"
        if not path.exists():
            prof_scripts.trace(kind, str(path))
        return report.analyze(events.read(path))

    def kinds(self, kind: type) -> set[str]:
        return {finding["kind"] for finding in self.report_of(kind)["findings"]}

    def find(self, kind: type, wanted: str) -> dict:
        """The dearest finding of a kind."""
        found = [finding for finding in self.report_of(kind)["findings"] if finding["kind"] == wanted]
        self.assertTrue(found, self.kinds(kind))
        return found[0]

    def test_clean(self):
        self.assertEqual(self.kinds(prof_scripts.Clean), set())

    def assert_at(self, finding: dict, statement: str) -> None:
        """A finding names the line of prof_scripts.py that has a statement."""
        path = HERE.with_name("prof_scripts.py")
        (number,) = (n for n, line in enumerate(path.read_text().splitlines(), 1) if statement in line)
        self.assertEqual(finding["where"].split()[0], f"{path}:{number}")

    def test_hidden_synchronisation(self):
        finding = self.find(prof_scripts.HiddenSync, "hidden synchronisation")
        self.assertIn("aten::item", finding["title"])
        self.assert_at(finding, ".sum().item()")

    def test_redundant_conversion(self):
        finding = self.find(prof_scripts.CastBackAndForth, "redundant conversion")
        self.assertIn("Cast there and back", finding["title"])
        self.assert_at(finding, "self.x.half().float()")

    def test_compilation_in_every_step(self):
        finding = self.find(prof_scripts.ChangingShapes, "compilation in every step")
        self.assertTrue(finding["details"])
        self.assert_at(finding, "return self.layers(x)")

    def test_small_operator_storm(self):
        finding = self.find(prof_scripts.SmallOps, "small-operator storm")
        self.assert_at(finding, "parameter.data.mul_")
        self.assertIn("aten::mul_", " ".join(finding["details"]))

    def test_layout_copies(self):
        self.assert_at(self.find(prof_scripts.Shuffle, "layout copies"), "image.view(16, 2")

    def test_layout_copies_of_a_backward_pass_are_the_forward_ones(self):
        self.assert_at(self.find(prof_scripts.TrainedShuffle, "layout copies"), "y.view(16, 2")

    def test_data_loader_stall(self):
        self.assert_at(self.find(prof_scripts.Stall, "data loader stall"), "next(self.loader)")
        self.assertGreater(self.report_of(prof_scripts.Stall)["whole"]["host_bound"], 0.5)

    def test_numbers_that_two_threads_have_in_common_name_no_line(self):
        ops = [
            events.HostOp("aten::mm", "op", thread, 10.0 * thread, 10.0 * thread + 1, sequence=7) for thread in (1, 2)
        ]
        ops.append(events.HostOp("aten::mm", "op", 1, 30, 31, sequence=8))
        self.assertEqual(list(findings.forward_operators(ops)), [8])

    def test_shares_and_totals(self):
        data = self.report_of(prof_scripts.Clean)
        for part in (data["whole"], *data["steps"]):
            shares = [part[name] for name in ("device_bound", "host_bound", "wait_bound")]
            self.assertAlmostEqual(sum(shares), 1, delta=0.02)
        self.assertEqual(len(data["steps"]), 3)
        self.assertAlmostEqual(sum(row["us"] for row in data["operators"]), data["device_us"], delta=1)
        self.assertAlmostEqual(sum(row["us"] for row in data["families"]), data["device_us"], delta=1)
        self.assertTrue(any(row["name"].startswith("Linear") for row in data["modules"]), data["modules"])
        self.assertGreater(data["memory"]["peak_bytes"], 16 * 256 * 256 * 4)

    def test_the_model_is_labelled(self):
        model = self.report_of(prof_scripts.Clean)["model"]
        self.assertIn("not a measurement", model["note"])
        self.assertIn("MODELLED", report.text(self.report_of(prof_scripts.Clean)))

    def test_page(self):
        page = Page()
        page.feed(report.page(self.report_of(prof_scripts.HiddenSync)))
        self.assertEqual(page.open, [])
        self.assertIn("hidden synchronisation", page.texts)
        self.assertTrue(any(tag == "circle" for tag, _ in page.tags))
        self.assertFalse([attrs for _, attrs in page.tags if "src" in attrs or "href" in attrs])

    @unittest.skipUnless(CHROMIUM, "needs a headless Chromium (Debian: apt install chromium)")
    def test_page_in_a_browser(self):
        path = self.folder / "shown.html"
        path.write_text(report.page(self.report_of(prof_scripts.HiddenSync)))
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
        done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("hidden synchronisation", done.stdout)
        self.assertIn("<circle", done.stdout)
        self.assertNotIn("CONSOLE", done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_picture(self):
        path = self.folder / "roofline.png"
        roofline.png(self.report_of(prof_scripts.Clean)["model"], path)
        self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_picture_without_matplotlib(self):
        model = self.report_of(prof_scripts.Clean)["model"]
        hidden = mock.patch.dict(sys.modules, {"matplotlib.figure": None, "matplotlib.backends.backend_agg": None})
        with hidden, self.assertRaisesRegex(RuntimeError, "pip install matplotlib"):
            roofline.png(model, self.folder / "none.png")
        self.assertFalse((self.folder / "none.png").exists())

    def test_compare(self):
        rows = report.compare(self.report_of(prof_scripts.Clean), self.report_of(prof_scripts.Shuffle))
        self.assertGreater(rows[0]["change_us"], 0)
        self.assertEqual(rows, sorted(rows, key=lambda row: (-row["change_us"], row["name"])))

    def test_command(self):
        trace = self.folder / "Clean.json"
        self.report_of(prof_scripts.Clean)
        self.report_of(prof_scripts.HiddenSync)
        command = [sys.executable, "-m", "torch.npu.analyze"]
        page, data = self.folder / "page.html", self.folder / "data.json"
        runs = {
            "text": [str(trace), "--html", str(page), "--json", str(data)],
            "compare": ["--compare", str(trace), str(self.folder / "HiddenSync.json")],
            "missing": [str(self.folder / "none.json")],
            "card": [str(trace), "--card", "no such"],
        }
        done = {
            name: subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
            for name, arguments in runs.items()
        }
        self.assertEqual(done["text"].returncode, 0, done["text"].stderr)
        self.assertIn("Findings: none", done["text"].stdout)
        self.assertIn("<html>", page.read_text())
        self.assertEqual(json.loads(data.read_text())["findings"], [])
        self.assertIn("new: hidden synchronisation", done["compare"].stdout)
        self.assertEqual(done["missing"].returncode, 2)
        self.assertIn("there is no profile", done["missing"].stderr)
        self.assertIn("there is no card 'no such'", done["card"].stderr)


class TestReading(TestCase):
    def test_what_is_no_profile(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.json")
            with self.assertRaisesRegex(ValueError, "holds no profile"):
                events.read(folder)
            for text in ("", "{}", "[1"):
                Path(path).write_text(text)
                with self.assertRaisesRegex(ValueError, "is no trace"):
                    events.read(path)

    def test_an_empty_profile(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.json")
            Path(path).write_text('{"traceEvents": []}')
            data = report.analyze(events.read(path))
        self.assertEqual(data["findings"], [])
        report.text(data)
        report.page(data)


class TestCost(TestCase):
    def task(self, name: str, inputs: str, output: str, dtype: str = "FLOAT16", core: str = "AI_CORE") -> Task:
        kinds = ";".join([dtype] * len(inputs.split(";")))
        return Task(name, "op", 0, 0, 0, 1, inputs=(inputs, kinds, ""), outputs=(output, dtype, ""), core=core)

    def test_operations(self):
        self.assertEqual(cost.flops(self.task("MatMul", "3,4;4,5", "3,5")), 2 * 3 * 4 * 5)
        self.assertEqual(cost.flops(self.task("BatchMatMul", "7,3,4;7,4,5", "7,3,5")), 2 * 7 * 3 * 4 * 5)
        self.assertEqual(cost.flops(self.task("BatchMatMul", "7,3,4;4,5", "7,3,5")), 2 * 7 * 3 * 4 * 5)
        self.assertEqual(cost.flops(self.task("Conv2D", "2,3,8,8;16,3,3,3", "2,16,6,6")), 2 * 2 * 16 * 36 * 27)
        self.assertEqual(cost.flops(self.task("Add", "3,4;4", "3,4")), 12)
        self.assertEqual(cost.flops(self.task("MatMul", "0,4;4,5", "0,5")), 0)

    def test_what_bounds(self):
        large = self.task("MatMul", "4096,4096;4096,4096", "4096,4096")
        large.bytes = 3 * 4096 * 4096 * 2
        self.assertEqual(cost.model(large).bound, "cube")
        wide = self.task("Add", "10000000;10000000", "10000000", "FLOAT")
        wide.bytes = 120000000
        self.assertEqual(cost.model(wide).bound, "memory")
        self.assertEqual(cost.model(self.task("Add", "4;4", "4")).bound, "launch")
        self.assertEqual(cost.model(self.task("Sort", "9000000", "9000000", core="AI_CPU")).bound, "ai_cpu")
        copy = Task("Memcpy HtoD", "copy", 0, 0, 0, 1, bytes=1 << 30)
        self.assertEqual(cost.model(copy).bound, "copy")
        with self.assertRaises(KeyError):
            cost.model(large, "another card")


if __name__ == "__main__":
    run_tests()
