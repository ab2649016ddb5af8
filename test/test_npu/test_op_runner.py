"""op_runner.py, which runs test_ops.py: the part that a seed chooses, shards, exceptions, resuming, dying workers."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import op_runner

HERE = Path(__file__).resolve().parent


class SelectionTest(unittest.TestCase):
    names = [f"Case.test_{i}" for i in range(4000)]

    def test_seed_chooses_a_part(self):
        part = op_runner.chosen(self.names, 1, 0.1)
        self.assertEqual(part, op_runner.chosen(self.names, 1, 0.1))
        self.assertNotEqual(part, op_runner.chosen(self.names, 2, 0.1))
        self.assertAlmostEqual(len(part) / 4000, 0.1, delta=0.02)

    def test_shards_are_a_partition(self):
        parts = [op_runner.shard(self.names, i, 3) for i in (1, 2, 3)]
        self.assertEqual(sorted(sum(parts, [])), sorted(self.names))
        self.assertLessEqual(max(map(len, parts)) - min(map(len, parts)), 1)


class ExceptionsTest(unittest.TestCase):
    def exceptions(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "list.yaml"
            path.write_text(text)
            return op_runner.Exceptions(path)

    def test_find(self):
        known = self.exceptions(
            "- {test: [forward, out], op: add, dtypes: [int64], reason: because}\n"
            "- {test: forward, op: mul, dtypes: all, samples: 'empty$', reason: none}\n"
        )
        self.assertEqual(known.find("out", "add", "torch.int64", ["[0] wrong"]), "because")
        self.assertIsNone(known.find("out", "add", "torch.int32", ["[0] wrong"]))
        self.assertIsNone(known.find("gradients", "add", "torch.int64", ["[0] wrong"]))
        self.assertEqual(known.find("forward", "mul", None, ["[1 empty] x", "[2 empty] y"]), "none")
        self.assertIsNone(known.find("forward", "mul", None, ["[1 empty] x", "[2] y"]))

    def test_an_entry_needs_a_reason(self):
        for text in ("- {test: forward, op: add, dtypes: all, reason: ''}", "- {test: forward, op: add}"):
            with self.assertRaisesRegex(ValueError, "list.yaml"):
                self.exceptions(text)

    def test_the_list_names_operators_that_exist(self):
        from op_modules import FOREACH
        from torch.testing._internal.common_methods_invocations import op_db

        names = {op.full_name for op in (*op_db, *FOREACH)}
        listed = {op for test, op in op_runner.Exceptions().entries if test not in ("modules", "optimizers", "random")}
        self.assertEqual(listed - names, set())


class RunTest(unittest.TestCase):
    def test_goes_on_where_it_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            records = Path(folder) / "records"
            left = {"test": "TestOperatorsNPU.test_forward_cosh_npu_float32", "right": 5, "native": 5, "metered": 5}
            records.write_text(json.dumps(left) + "\n")
            done = subprocess.run(
                [sys.executable, str(HERE / "test_ops.py"), "-k", "test_forward_cosh_npu_float", "--records", records],
                capture_output=True,
                text=True,
                timeout=300,
                env={key: value for key, value in os.environ.items() if not key.startswith("NPU_OPS")},
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("1 of 3 tests are done already", done.stdout)
            self.assertRegex(done.stdout, r"3 tests in \d+ s; 0 listed exceptions; 0 failed\nOK")
            self.assertEqual(len(records.read_text().splitlines()), 3)

    def test_a_worker_that_dies(self):
        # Its place is taken by another one, which goes on behind the test that was running.
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "test_ops.py"
            script.write_text(
                "import json, os, sys\n"
                "add = lambda **r: open(os.environ['NPU_OPS_RECORDS'], 'a').write(json.dumps(r) + '\\n')\n"
                "for name in open(os.environ['NPU_OPS_TESTS']).read().split():\n"
                "    add(begin=name)\n"
                "    if name == 'b':\n"
                "        os.kill(os.getpid(), 9)\n"
                "    add(test=name, right=1)\n"
            )
            target = os.path.join(folder, "records")
            with unittest.mock.patch.object(op_runner, "HERE", Path(folder)):
                owner = op_runner.Owner(["a", "b", "c"], target, folder, 0, True)
                while owner.alive():
                    owner.process and owner.process.wait()
            results = {r["test"]: r for r in op_runner.Records(target).read()}
            self.assertEqual((results["a"]["right"], results["c"]["right"]), (1, 1))
            self.assertIn("killed its process (status -9)", results["b"]["failures"][0])


if __name__ == "__main__":
    unittest.main()
