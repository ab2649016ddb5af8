"""msaccucmp.py compare: measures, tolerances, the CSV file, the page, the exit status; and convert's command line."""

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dump_case import GOLDEN, MSACCUCMP, ConvNet, DumpCase, seeded, train

import torch

sys.path.insert(0, str(MSACCUCMP.parent))

import acl_dump
import h5_dump
import metrics

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
COLUMNS = (
    "Index,OpType,NPUDump,DataType,GroundTruth,DataType,TensorIndex,Shape,CosineSimilarity,MaxAbsoluteError,"
    "AccumulatedRelativeError,RelativeEuclideanDistance,KullbackLeiblerDivergence,StandardDeviation,MeanAbsoluteError,"
    "RootMeanSquareError,MaxRelativeError,MeanRelativeError,CompareFailReason"
)


class TestMeasures(unittest.TestCase):
    def measure(self, a, b, dtype="float32", **options):
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        return metrics.compare(a, b, metrics.tolerance(dtype, **options))

    def test_values(self):
        found = self.measure([1, 2, 4], [1, 3, 3])
        error = np.array([0, -1, 1])
        self.assertAlmostEqual(found["CosineSimilarity"], 19 / math.sqrt(21 * 19), 6)
        self.assertEqual(found["MaxAbsoluteError"], 1)
        self.assertAlmostEqual(found["AccumulatedRelativeError"], 2 / 3, 6)
        self.assertAlmostEqual(found["RelativeEuclideanDistance"], np.linalg.norm(error) / math.sqrt(19), 6)
        self.assertAlmostEqual(found["MeanAbsoluteError"], 2 / 3, 6)
        self.assertAlmostEqual(found["RootMeanSquareError"], math.sqrt(2 / 3), 6)
        self.assertAlmostEqual(found["MaxRelativeError"], 1 / 3, 6)
        self.assertAlmostEqual(found["MeanRelativeError"], 2 / 9, 6)
        self.assertEqual(found["StandardDeviation"], "(2.33333;1.24722),(2.33333;0.942809)")
        self.assertGreater(found["KullbackLeiblerDivergence"], 0)
        self.assertEqual((found.passed, found.reason), (False, "out of tolerance."))
        same = self.measure([1, 2, 4], [1, 2, 4])
        self.assertEqual((same["KullbackLeiblerDivergence"], same["CosineSimilarity"], same.passed), (0, 1, True))

    def test_nan_and_infinity(self):
        nan, inf = float("nan"), float("inf")
        found = self.measure([nan, inf, 1, 2], [nan, inf, 1, 2])
        self.assertEqual((found.passed, found["MaxAbsoluteError"], found.reason), (True, 0, ""))
        for mine in ([nan, 1], [inf, 1]):
            found = self.measure(mine, [1, 1])
            self.assertFalse(found.passed)
            self.assertRegex(found.reason, "NaN or Inf differ at 1 elements")
            self.assertEqual(found["MaxAbsoluteError"], 0)
        self.assertFalse(self.measure([inf], [-inf]).passed)
        self.assertTrue(self.measure([nan, inf], [nan, inf]).passed)

    def test_the_ends_of_float64(self):
        for size in (1e308, 1e-300):
            a = np.array([size, size])
            for b, rtol, passed in ((a * (1 + 1e-9), 1e-7, True), (-a, 1e-7, False)):
                limits = metrics.Tolerance(rtol, 0.0)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    found = metrics.compare(b, a, limits)
                self.assertEqual(found.passed, passed)
                if passed:
                    self.assertAlmostEqual(found["RelativeEuclideanDistance"] * 1e9, 1, 5)

    def test_empty_scalar_zero(self):
        found = self.measure(np.zeros((0, 3)), np.zeros((0, 3)))
        self.assertTrue(found.passed and math.isnan(found["CosineSimilarity"]))
        self.assertEqual(found.reason, "this tensor is empty.")
        self.assertIn("this tensor is scalar.", self.measure(3.0, 3.0).reason)
        found = self.measure([0, 0], [1, 1])
        self.assertTrue(math.isnan(found["CosineSimilarity"]))
        self.assertRegex(found.reason, "all elements of NPUDump are zero")
        self.assertTrue(self.measure([0, 0], [0, 0]).passed)
        self.assertRegex(self.measure([1, 2], [1]).reason, r"shapes differ: \[2\] and \[1\]")

    def test_tolerances(self):
        ones = np.ones(100)
        self.assertTrue(self.measure(ones * (1 + 5e-5), ones).passed)
        self.assertFalse(self.measure(ones * (1 + 5e-4), ones).passed)
        self.assertTrue(self.measure(ones * (1 + 5e-4), ones, "float16").passed)
        self.assertTrue(self.measure(ones * 1.01, ones, "bfloat16").passed)
        self.assertTrue(self.measure(ones * 1.01, ones, rtol=0.1).passed)
        self.assertFalse(self.measure(ones * 1.01, ones, "bfloat16", rtol=1e-3, atol=1e-3).passed)
        # One wrong element of many, which a distance over all does not show.
        wrong = np.ones(1_000_000)
        wrong[7] = 2
        self.assertFalse(self.measure(wrong, np.ones(1_000_000), "bfloat16").passed)
        exact = metrics.tolerance("int64")
        self.assertFalse(metrics.compare(np.array([1, 2]), np.array([1, 3]), exact).passed)
        self.assertEqual(metrics.tolerance("float32", "bfloat16"), metrics.TOLERANCES["bfloat16"])

    def test_floats_that_numpy_lacks(self):
        values = torch.tensor([0.0, -1.5, 300.0, 1e-8, float("inf"), 2.0**-7])
        brain = values.bfloat16()
        np.testing.assert_array_equal(
            h5_dump.decode(brain.view(torch.uint16).numpy(), "bfloat16"), brain.float().numpy()
        )
        for name in ("float8_e4m3fn", "float8_e5m2"):
            every = torch.arange(256, dtype=torch.uint8)
            wanted = every.view(getattr(torch, name)).float().numpy()
            np.testing.assert_array_equal(h5_dump.decode(every.numpy(), name), wanted)


class CompareCase(DumpCase):
    def compare(self, mine, truth, *options):
        return self.run_python(MSACCUCMP, "compare", "-m", mine, "-g", truth, "-out", self.folder / "out", *options)

    def rows(self):
        """(dicts of the newest CSV file by column, with the second DataType as DataType2)."""
        file = max((self.folder / "out").glob("*.csv"), key=lambda f: f.stat().st_mtime_ns)
        with open(file, newline="") as text:
            head, *rows = csv.reader(text)
        head[5] = head[5] + "2"
        return [dict(zip(head, row, strict=True)) for row in rows]

    def pair(self, change=None):
        """Dumps of two runs; change(path) spoils the second one."""
        model, x = seeded(ConvNet), torch.randn(2, 3, 8, 8)
        _, a = self.dump(lambda: train(model, x), "npu.h5")
        shutil.copy(a, self.folder / "gpu.h5")
        if change is not None:
            with h5py.File(a, "r+") as file:
                change(file)
        return a, self.folder / "gpu.h5"


class TestCompare(CompareCase):
    def test_equal(self):
        mine, truth = self.pair()
        done = self.compare(mine, truth)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\d+ operators compared, 0 out of tolerance")
        (file,) = (self.folder / "out").glob("*.csv")
        self.assertEqual(file.read_text().splitlines()[0], COLUMNS)
        rows = self.rows()
        self.assertEqual([r["Index"] for r in rows], [str(i + 1) for i in range(len(rows))])
        row = rows[0]
        self.assertEqual(row["OpType"], "convolution")
        self.assertEqual((row["NPUDump"], row["GroundTruth"]), ("convolution/1", "convolution/1"))
        self.assertEqual((row["DataType"], row["DataType2"], row["Shape"]), ("float32", "float32", "(2,4,8,8)"))
        self.assertEqual((row["TensorIndex"], row["CosineSimilarity"]), ("convolution/1:output:0", "1"))

    def test_differences(self):
        def change(file):
            file["relu/1/output/output"][...] *= 1.5
            file["addmm/1/output/output"][0, 0] = np.nan
            del file["mm/1"]

        mine, truth = self.pair(change)
        done = self.compare(mine, truth)
        self.assertEqual(done.returncode, 1)
        self.assertIn("3 out of tolerance", done.stdout)
        self.assertIn("first operator out of tolerance: relu/1", done.stdout)
        failed = {r["NPUDump"]: r for r in self.rows() if "tolerance" in r["CompareFailReason"]}
        self.assertEqual(set(failed), {"relu/1"})
        self.assertAlmostEqual(float(failed["relu/1"]["RelativeEuclideanDistance"]), 0.5, 5)
        reasons = {r["GroundTruth"]: r["CompareFailReason"] for r in self.rows()}
        self.assertRegex(reasons["addmm/1"], "1 NaN and 0 Inf in NPUDump, 0 NaN")
        self.assertEqual(reasons["mm/1"], "no counterpart in NPUDump.")

    def test_wrong_inputs_are_told(self):
        def change(file):
            for place in ("relu/1/input/self", "relu/1/output/output"):
                file[place][...] += 1

        mine, truth = self.pair(change)
        self.compare(mine, truth)
        reasons = {r["NPUDump"]: r["CompareFailReason"] for r in self.rows()}
        self.assertEqual(reasons["relu/1"], "out of tolerance. Its input self differs already.")

    def test_options(self):
        def change(file):
            file["relu/1/output/output"][...] *= 1.01

        mine, truth = self.pair(change)
        self.assertEqual(self.compare(mine, truth).returncode, 1)
        self.assertEqual(self.compare(mine, truth, "--rtol", "0.05").returncode, 0)
        self.assertEqual(self.compare(mine, mine, "--cosine", "1").returncode, 0)
        self.assertEqual(self.compare(mine, truth, "-alg", "0,MaxAbsoluteError").returncode, 1)
        self.assertEqual(list(self.rows()[0])[8:], ["CosineSimilarity", "MaxAbsoluteError", "CompareFailReason"])
        done = self.compare(mine, truth, "-alg", "Nonsense")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'Nonsense' is none of", done.stderr)

    def test_limits_that_are_none(self):
        mine, truth = self.pair(lambda file: file["relu/1/output/output"].write_direct(np.random.rand(2, 4, 8, 8)))
        self.assertEqual(self.compare(mine, truth, "--rtol", "10", "--atol", "10", "--cosine", "0.99").returncode, 1)
        for option, value in (("--rtol", "nan"), ("--atol", "-1"), ("--rtol", "inf"), ("--cosine", "1.1")):
            done = self.compare(mine, truth, f"{option}={value}")
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"argument {option}: {value} is not a number from", done.stderr)

    def test_outputs_that_one_side_lacks(self):
        def change(file):
            file["relu/1/output"].move("output", "other")

        mine, truth = self.pair(change)
        self.assertEqual(self.compare(mine, truth).returncode, 1)
        reasons = [r["CompareFailReason"] for r in self.rows() if r["OpType"] == "relu"]
        self.assertIn("no such output in GroundTruth.", reasons[0])
        self.assertIn("no such output in NPUDump.", reasons[1])

    def test_random_operators_are_not_judged(self):
        _, mine = self.dump(lambda: torch.nn.functional.dropout(torch.ones(100)), "a.h5")
        _, truth = self.dump(lambda: torch.nn.functional.dropout(torch.ones(100)), "b.h5")
        self.assertEqual(self.compare(mine, truth).returncode, 0)
        self.assertIn("random", self.rows()[-1]["CompareFailReason"])

    def test_bad_files(self):
        mine, truth = self.pair()
        bad = self.folder / "bad.h5"
        bad.write_text("no")
        for a, b in ((bad, truth), (mine, self.folder / "missing.h5")):
            done = self.compare(a, b)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, r"msaccucmp.py: .*(bad|missing).h5: not readable")

    def test_content_that_is_no_dumps(self):
        """Other people's .h5 files, and those that h5copy made of a part: named, never a traceback."""
        mine, truth = self.pair()
        bad = self.folder / "bad.h5"

        def text(file):
            file["relu/1/output/output"] = "text"
            file["relu/1/output/output"].attrs["DataType"] = "float32"

        def link(file):
            file["relu/1/output/output"] = h5py.ExternalLink("gone.h5", "/x")

        def dataset(file):
            file["relu/1"] = np.ones(3)
            file["kernel"] = np.ones(3)
            file["add"] = h5py.SoftLink("/nowhere")

        def pairs(file):
            file["relu/1/output/output"] = np.float16(1)
            file["relu/1/output/output"].attrs["DataType"] = "complex32"

        for make, reason in (
            (pairs, "bad.h5: relu/1/output/output cannot be read as a dump's: too many indices"),
            (text, "bad.h5: relu/1/output/output cannot be read as a dump's: it holds .*, not numbers"),
            (link, "bad.h5: relu/1/output cannot be read as a dump's: .*open"),
            (dataset, "bad.h5: no operators"),
        ):
            with h5py.File(bad, "w") as file:
                make(file)
            for pair in ((bad, truth), (mine, bad), (bad, bad)):
                done = self.compare(*pair)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(done.stderr, f"^msaccucmp.py: .*{reason}")
        with h5py.File(truth, "r+") as file:
            del file["relu/1/input"]
            file["relu/1/output/output"][...] += 1
        self.assertEqual(self.compare(mine, truth).returncode, 1)

    def test_a_terminal_of_ascii(self):
        """What the terminal cannot print is escaped."""
        mine, _ = self.pair(lambda file: file.move("relu", "\u65e5\u672c"))
        options = ("-out", self.folder / "\xfc", "--all")
        command = (MSACCUCMP, "compare", "-m", mine, "-g", mine, *options)
        done = self.run_python(*command, PYTHONIOENCODING="ascii:strict")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("\\u65e5\\u672c/1", done.stdout)

    def test_limits_of_autocast(self):
        """What autocast computed in bfloat16 has its tolerance, also where the result is float32 again."""

        def change(file):
            file["relu/1/output/output"][...] *= 1.01
            file["relu/1"].attrs["Autocast"] = "bfloat16"

        self.assertEqual(self.compare(*self.pair(change)).returncode, 0)

    def test_nothing_in_common(self):
        bad = self.folder / "bad.h5"
        with h5py.File(bad, "w") as file:
            file.create_group("relu/1/output")
        done = self.compare(bad, bad)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("have no operator with outputs in common", done.stderr)

    def test_results_that_cannot_be_written(self):
        mine, truth = self.pair()
        (self.folder / "out").write_text("")
        done = self.compare(mine, truth)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "msaccucmp.py: .*out: there is a file of this name")
        (self.folder / "out").unlink()
        script = f"""
            import resource, runpy, sys
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
            sys.argv = ["msaccucmp.py", *{["compare", "-m", str(mine), "-g", str(truth), "-out", "out"]}]
            runpy.run_path({str(MSACCUCMP)!r}, run_name="__main__")
            """
        done = self.script(script, PYTHONDONTWRITEBYTECODE="1")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"msaccucmp.py: out/result_\d+.csv: File too large")
        self.assertEqual(list((self.folder / "out").iterdir()), [])

    def test_summaries(self):
        _, mine = self.dump(lambda: torch.ones(3) * 2, "a.h5", summary_only=True)
        _, truth = self.dump(lambda: torch.ones(3) * 3, "b.h5", summary_only=True)
        self.assertEqual(self.compare(mine, mine).returncode, 0)
        self.assertEqual(self.compare(mine, truth).returncode, 1)

    def test_golden_file(self):
        self.assertEqual(self.compare(GOLDEN, GOLDEN).returncode, 0)

    def test_packages_missing(self):
        mine, truth = self.pair()
        for package, status in (("h5py", 3), ("rich", 0)):
            (self.folder / package).mkdir()
            (self.folder / package / "__init__.py").write_text("raise ImportError('no such package')")
            done = self.run_python(
                MSACCUCMP, "compare", "-m", mine, "-g", truth, "-out", self.folder / "out", PYTHONPATH=str(self.folder)
            )
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(f"pip install {package}", done.stderr)
            shutil.rmtree(self.folder / package)

    def test_works_without_torch(self):
        mine, truth = self.pair()
        (self.folder / "torch.py").write_text("raise ImportError('not here')")
        done = self.run_python(
            MSACCUCMP, "compare", "-m", mine, "-g", truth, "-out", self.folder, PYTHONPATH=str(self.folder)
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_installed_under_the_guides_path(self):
        home = Path(torch.__file__).parent / "tools" / "operator_cmp" / "compare"
        for name in ("msaccucmp.py", "msaccucmp.pyc"):
            done = self.run_python(home / name, "compare", "-m", GOLDEN, "-g", GOLDEN, "-out", self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            done = self.run_python(home / name, "convert", "-d", self.folder / "none", "-out", self.folder, "-v", "2")
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, "none: no such file or folder")


class TestPage(CompareCase):
    def page(self):
        def change(file):
            file["relu/1/output/output"][...] *= 1.5
            file["mm/1/output/output"][...] *= 1.1

        mine, truth = self.pair(change)
        done = self.compare(mine, truth)
        return Path(done.stdout.split()[-1])

    def test_self_contained(self):
        text = self.page().read_text()
        self.assertEqual(re.findall(r"""(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)""", text), [])
        data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
        self.assertEqual([r["cells"] for r in data["rows"]], [list(r.values()) for r in self.rows()])
        self.assertRegex(text, r"First operator out of tolerance: <strong>relu/1</strong>")

    @unittest.skipUnless(CHROMIUM, "needs a headless Chromium (Debian: apt install chromium)")
    def test_in_a_browser(self):
        page = self.page()
        rows = self.rows()

        def shown(fragment=""):
            done = subprocess.run(
                [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{page}{fragment}"],
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertIn("</html>", done.stdout, done.stderr[-500:])
            body = re.search(r"<tbody>(.*)</tbody>", done.stdout, re.DOTALL)[1]
            indices = [int(i) for i in re.findall(r'<tr data-index="(\d+)"', body)]
            return (
                indices,
                len(re.findall(r"<circle[^>]*class=\"bad\"", done.stdout)),
                len(re.findall("<circle", done.stdout)),
            )

        indices, bad, dots = shown()
        self.assertEqual(indices, list(range(1, len(rows) + 1)))
        self.assertEqual(bad, 2)
        self.assertEqual(dots, sum(r["RelativeEuclideanDistance"] != "NaN" for r in rows))
        self.assertEqual(
            shown("#filter=convolution")[0], [int(r["Index"]) for r in rows if "convolution" in r["OpType"]]
        )
        worst, _, _ = shown("#sort=RelativeEuclideanDistance&down=1&bad=1")
        self.assertEqual([rows[i - 1]["NPUDump"] for i in worst], ["relu/1", "mm/1"])


class TestConvert(DumpCase):
    def test_command_line(self):
        done = self.run_python(MSACCUCMP, "convert", "-d", self.folder, "-out", self.folder / "out", "-v", "2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds no dump files", done.stderr)
        broken = self.folder / "dump" / "Add.Add_0.1.0.1695000000000000"
        broken.parent.mkdir()
        broken.write_bytes(b"not a dump")
        done = self.run_python(MSACCUCMP, "convert", "-d", broken, "-out", self.folder / "out")
        self.assertEqual(done.returncode, 1)
        self.assertIn(broken.name, done.stderr)

    def test_a_folder_of_all_sorts(self):
        for device in ("0", "1"):
            (self.folder / "dump" / device).mkdir(parents=True)
            item = acl_dump.DumpTensor(np.full((1, 2, 3, 3), float(device), np.float32), "NCHW")
            bias = acl_dump.DumpTensor(np.ones(2, np.float32))
            dump = acl_dump.AclDump("BiasAdd", "op", 1, 2, 1695000000000000, inputs=[item, bias])
            acl_dump.write(self.folder / "dump" / device, dump)
        (self.folder / "dump" / "Add.gone.1.2.3").symlink_to("nowhere")
        os.mkfifo(self.folder / "dump" / "Add.pipe.1.2.3")
        done = self.run_python(MSACCUCMP, "convert", "-d", "dump", "-out", "npy", "-f", "nhwc")
        self.assertEqual(done.returncode, 1)
        self.assertIn("2 of 4 dump files converted to 4 .npy files in npy", done.stdout)
        self.assertIn("Add.gone.1.2.3: neither a file nor a folder", done.stderr)
        self.assertIn("input.1.npy is ND of shape [2], not NHWC", done.stderr)
        # What has the same name for both devices does not overwrite itself.
        files = {float(np.load(f).ravel()[0]): np.load(f).shape for f in (self.folder / "npy").rglob("*.input.0.npy")}
        self.assertEqual(files, {0.0: (1, 3, 3, 2), 1.0: (1, 3, 3, 2)})

    def test_refused(self):
        (self.folder / "file").write_text("")
        for arguments, reason in (
            (("-d", "gone"), "gone: no such file or folder"),
            (("-d", ".", "-f", "FOO"), "'FOO' is none of ND and the orders of NCHW"),
            (("-d", ".", "-v", "3"), "invalid choice: 3"),
        ):
            done = self.run_python(MSACCUCMP, "convert", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(reason, done.stderr)

    def test_header_of_huge_dims(self):
        dims = acl_dump._block(1, acl_dump._put_varint(2**63) + acl_dump._put_varint(2))
        tensor = acl_dump._number(1, 1) + acl_dump._number(2, 3) + acl_dump._block(3, dims) + acl_dump._number(6, 4)
        header = acl_dump._block(3, tensor)
        file = self.folder / "Add.op.1.2.3"
        file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        done = self.run_python(MSACCUCMP, "convert", "-d", file, "-out", "npy")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^msaccucmp.py: .*Add.op.1.2.3: this is not a complete ACL dump file: .*dims")

    def test_files(self):
        config = {"dump": {"dump_list": [], "dump_path": "acl", "dump_mode": "all", "dump_op_switch": "on"}}
        (self.folder / "dump.json").write_text(json.dumps(config))
        done = self.script(
            """
            import torch
            torch.npu.set_device("npu:0")
            a = torch.tensor([2, 2]).to("npu:0")
            torch.npu.init_dump()
            torch.npu.set_dump("dump.json")
            a.add_(1)
            torch.npu.finalize_dump()
            """
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_python(MSACCUCMP, "convert", "-d", "acl", "-out", "npy", "-v", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        outputs = list((self.folder / "npy").glob("*.output.0.npy"))
        self.assertEqual(len(outputs), 1)
        self.assertRegex(outputs[0].name, r"^\w+\.\w+\.\d+\.\d+\.output\.0\.npy$")
        np.testing.assert_array_equal(np.load(outputs[0]), [3, 3])


if __name__ == "__main__":
    unittest.main()
