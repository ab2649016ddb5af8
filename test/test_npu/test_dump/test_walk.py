"""The guide's whole procedure (docs/precision.md): fault and overflow planted, found, mapped to device operators."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from unittest import mock

import h5py

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dump_case import ROOT, DumpCase, attributes, calls

import torch


class TestWalk(DumpCase):
    def test_example(self):
        script = ROOT / "examples" / "precision" / "find_faulty_operator.py"
        if not script.is_file():
            self.skipTest("needs the source tree")
        done = self.run_python(script, "--folder", self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("out of tolerance: relu/2; bisect names: relu/2\noverflowed: /mul/2\n", done.stdout)
        self.assertTrue(list((self.folder / "numpy").glob("Relu.*.output.0.npy")))
        self.assertFalse([f for f in (self.folder / "numpy").iterdir() if not f.name.startswith("Relu.")])

    @unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS") == "1", "a quarter of a minute; NPU_SLOW_TESTS=1 runs it")
    def test_benchmark_runs(self):
        script = ROOT / "benchmarks" / "dumper.py"
        if not script.is_file():
            self.skipTest("needs the source tree")
        options = [
            "--arch",
            "shufflenet_v2_x0_5",
            "--batch",
            "2",
            "--size",
            "64",
            "--rounds",
            "1",
            "--no-memory",
            "--allow-load",
        ]
        done = self.run_python(script, *options, OMP_NUM_THREADS="1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"recorded step / h5py alone: [0-9.]+ \(target: at most 3\)")


class TestOverflow(DumpCase):
    def check(self, work):
        with torch.utils.dumper(check_overflow=True, dump_path=self.folder, load_file_path="", progress=False) as dump:
            work()
        return dump

    def test_forward(self):
        x = torch.full((2, 3), 300.0, dtype=torch.float16).npu()
        dump = self.check(lambda: ((x + 1) * x).sum())
        self.assertEqual([(o["op_type"], o["operator"]) for o in dump.overflows], [("Mul", "/mul/1")])
        self.assertEqual(calls(dump.path), ["/mul/1"])
        found = torch.utils.dumper.replay(dump.path, "/mul/1", "npu")["output"]
        self.assertTrue(torch.isinf(found).all())
        self.assertEqual(attributes(dump.path, "/mul/1")["IrOp"], "Mul")

    def test_backward(self):
        for dtype, factor in ((torch.float16, 6e4), (torch.bfloat16, 3e38)):
            x = torch.ones(3, dtype=dtype).npu().requires_grad_()

            def work(x=x, factor=factor):
                y = x * 2
                y.register_hook(lambda g: g * factor)
                y.register_hook(lambda g: g * 10)
                (y.exp() + 1).sum().backward()

            dump = self.check(work)
            (hit,) = dump.overflows
            self.assertEqual(hit["op_type"], "Mul")
            self.assertEqual(attributes(dump.path, hit["operator"])["Phase"], "backward")

    def test_in_place(self):
        x = torch.full((3,), 300.0, dtype=torch.float16).npu()
        dump = self.check(lambda: x.mul_(x))
        with h5py.File(dump.path) as file:
            self.assertEqual(file["/mul_/1/input/self"][()].tolist(), [300.0] * 3)
            self.assertEqual(file["/mul_/1/output/output"][()].tolist(), [float("inf")] * 3)
            self.assertEqual(file["/mul_/1/input/other"].attrs["SameAs"], "self")

    def test_prints_the_ir_name_once(self):
        done = self.script(
            """
            import torch
            x = torch.full((3,), 300.0, dtype=torch.float16).npu()
            with torch.utils.dumper(check_overflow=True, dump_path=".", load_file_path="") as dump:
                y = x * x
                (y + 1).relu()
            """
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^dumper: Mul \(\w+\) overflowed on npu:0 in aten operator /mul/1\n$")

    def test_underflow(self):
        x = torch.full((3,), 1e-4, dtype=torch.float16).npu()
        big = torch.full((3,), 300.0, dtype=torch.float16).npu()
        for wanted, expected in (
            (True, [("underflow", "/mul/1"), ("overflow", "/mul/2")]),
            ("underflow", [("underflow", "/mul/1")]),
            ("overflow", [("overflow", "/mul/2")]),
        ):
            told = io.StringIO()
            with (
                contextlib.redirect_stdout(told),
                torch.utils.dumper(check_overflow=wanted, dump_path=self.folder, progress=False) as dump,
            ):
                (x * x) + 1
                big * big
            self.assertEqual([(o["kind"], o["operator"]) for o in dump.overflows], expected)
            self.assertEqual(calls(dump.path), [operator for _, operator in expected])
            lost = r"^dumper: Mul \(\w+\) underflowed on npu:0 in aten operator /mul/1; results that became 0: 3$"
            (self.assertRegex if wanted != "overflow" else self.assertNotRegex)(told.getvalue().split("\n")[0], lost)
            os.unlink(dump.path)

    def test_nothing_overflows(self):
        dump = self.check(lambda: torch.ones(3, dtype=torch.float16).npu() * 2)
        self.assertEqual((dump.overflows, dump.path, os.listdir(self.folder)), ([], None, []))
        self.check(lambda: torch.full((3,), 1e30) * 1e30)  # the CPU has no register

    def test_dynamic_loss_scale_is_refused(self):
        scaler = torch.amp.GradScaler("npu")
        loss = torch.ones(1).npu()
        with self.assertRaisesRegex(RuntimeError, "dynamic loss scaling"):
            self.check(lambda: scaler.scale(loss))
        self.check(lambda: torch.amp.GradScaler("npu", enabled=False).scale(loss))
        scaler.scale(loss)
        state = mock.Mock(_amp_state=mock.Mock(loss_scalers=[mock.Mock(dynamic=True)]))
        with mock.patch.dict(sys.modules, {"apex.amp._amp_state": state}):
            with self.assertRaisesRegex(RuntimeError, "apex's dynamic loss scale"):
                self.check(lambda: None)
            state._amp_state.loss_scalers[0].dynamic = False
            with self.assertRaisesRegex(RuntimeError, "combined tensors"):
                self.check(lambda: None)


class TestMapping(DumpCase):
    def setUp(self):
        super().setUp()
        old = os.getcwd()
        self.addCleanup(os.chdir, old)
        os.chdir(self.folder)
        config = {"dump_list": [], "dump_path": "./output_IR2TBE", "dump_mode": "all", "dump_op_switch": "on"}
        self.config = self.folder / "acl.json"
        self.config.write_text(json.dumps({"dump": config}))

    def load(self, work, source):
        options = {"use_load": True, "dump_path": "./", "load_with_acl_dump": True, "progress": False}
        with torch.utils.dumper(load_file_path=source, **options):
            work()
        return sorted(f.name for f in self.folder.glob("output_IR2TBE/**/*") if f.is_file())

    def extract(self, path, call):
        if shutil.which("h5copy"):
            command = ["h5copy", "-pv", "-i", path, "-o", "output.h5", "-s", f"{call}/", "-d", f"{call}/"]
            subprocess.run(command, check=True, capture_output=True)
        else:  # Debian's hdf5-tools are not installed; h5py copies the group in the same way
            op, seqid = call.strip("/").split("/")
            with h5py.File(path, "r") as source, h5py.File("output.h5", "a") as target:
                source.copy(call, target.require_group(op), name=seqid)
        return "output.h5"

    def test_only_the_extracted_operators(self):
        def work():
            x = torch.ones(2, 3).npu()
            return torch.relu(x * 2 - 1) * 3

        _, path = self.dump(work)
        self.extract(path, "/mul/2")
        files = self.load(work, self.extract(path, "/relu/1"))
        self.assertEqual(sorted(name.split(".")[0] for name in files), ["Mul", "Relu"])

    def test_overflow_file(self):
        x = torch.full((3,), 300.0, dtype=torch.float16).npu()
        q = torch.ones(1, 1, 2, 4, dtype=torch.float16).npu()

        def work():
            # Attention first: the overflow file counts what regions are made of, and so must the loading run.
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
            return (x + 1) * x

        with torch.utils.dumper(check_overflow=True, dump_path="./", load_file_path="", progress=False) as dump:
            work()
        (hit,) = dump.overflows
        files = self.load(work, self.extract(dump.path, hit["operator"]))
        self.assertEqual([name.split(".")[0] for name in files], ["Mul"])

    def test_threads(self):
        """The device has one dump: operators of several threads take turns."""
        x, errors = torch.ones(2, 3).npu(), []

        def work():
            threads = [threading.Thread(target=lambda: [x * 2 for _ in range(4)]) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        _, path = self.dump(work)
        with mock.patch("threading.excepthook", side_effect=lambda args: errors.append(args.exc_value)):
            files = self.load(work, path)
        self.assertEqual((len(files), errors), (12, []))

    def test_prerequisites(self):
        _, path = self.dump(lambda: torch.ones(2).npu() * 2)
        with mock.patch.dict(os.environ, ACL_DUMP_DATA="1"), self.assertRaisesRegex(RuntimeError, "ACL_DUMP_DATA=0"):
            self.load(lambda: None, path)
        torch.npu.init_dump()
        try:
            with self.assertRaisesRegex(RuntimeError, "does not go with torch.npu.init_dump"):
                self.load(lambda: None, path)
            torch.npu.set_dump(str(self.config))
            with self.assertRaisesRegex(RuntimeError, "init_dump"):
                self.load(lambda: None, path)
        finally:
            torch.npu.finalize_dump()
        self.config.write_text("{bad")
        with self.assertRaisesRegex(RuntimeError, "acl.json:1:2: this is not JSON"):
            torch.utils.dumper(use_load=True, load_file_path=path, dump_path="./", load_with_acl_dump=True)
        self.config.unlink()
        with self.assertRaisesRegex(RuntimeError, "acl.json"):
            self.load(lambda: None, path)


if __name__ == "__main__":
    unittest.main()
