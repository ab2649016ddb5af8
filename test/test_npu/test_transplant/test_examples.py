# The scripts of examples/porting/cuda: each is converted by the tool and trained on npu with npu's own kernels alone;
# the losses must be the CPU's, step by step. Unconverted they must do the same through torch.npu.transfer_to_npu.
import ast
import json
import os
import subprocess
import sys
import tempfile
import unittest

from transplant_case import ROOT, SCRIPT, tool

PORTING = os.path.join(ROOT, "examples", "porting")


def parity(*args):
    """Rows of examples/porting/parity.py, where only npu's own kernels may run."""
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore", NPU_FALLBACK="0")
    command = [sys.executable, os.path.join(PORTING, "parity.py"), "--json", *args]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    if not done.stdout.strip():
        raise AssertionError(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


class TestExamples(unittest.TestCase):
    def check(self, rows):
        for row in rows:
            self.assertEqual(row["failure"], "", row)
            self.assertLess(row["error"], 1e-3, row)

    def test_converted_scripts_train_as_on_the_cpu(self):
        rows = parity()
        self.assertGreaterEqual(len({row["script"] for row in rows}), 15)
        self.check(rows)

    def test_unconverted_scripts_train_through_transfer_to_npu(self):
        self.check(parity("--transfer", "--steps", "2"))

    def test_acceptance_command(self):
        with tempfile.TemporaryDirectory() as out:
            source = os.path.join(PORTING, "cuda")
            subprocess.run([sys.executable, SCRIPT, "-i", source, "-o", out], check=True, stdout=subprocess.DEVNULL)
            command = [sys.executable, os.path.join(out, "cuda_msft", "resnet.py"), "--steps", "5"]
            environment = dict(os.environ, NPU_FALLBACK="0")
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count("loss"), 5)

    def test_every_model_of_the_guide_has_a_script(self):
        with open(os.path.join(PORTING, "README.md"), encoding="utf-8") as file:
            table = [line.strip("| \n").split(" | ") for line in file if line.startswith("| `")]
        models = [model.strip() for row in table for model in row[1].split(",")]
        self.assertEqual(len(models), 55)
        self.assertEqual(len(set(models)), 55)
        for row in table:
            self.assertTrue(os.path.isfile(os.path.join(PORTING, "cuda", row[0].strip("`"))), row)

    def test_nothing_of_cuda_is_left_in_the_code(self):
        def cuda_in(text):
            found = [
                node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute) and node.attr == "cuda"
            ]
            return [ast.unparse(node) for node in found if ast.unparse(node) != "args.cuda"]

        convert = tool("convert").Converter(tool("unit").Options())
        for name in os.listdir(os.path.join(PORTING, "cuda")):
            if name.endswith(".py"):
                with open(os.path.join(PORTING, "cuda", name), "rb") as file:
                    new, report = convert.convert(file.read(), name)
                self.assertEqual(cuda_in(new), [], name)
                self.assertEqual(report.unsupported, [], name)


if __name__ == "__main__":
    unittest.main()
