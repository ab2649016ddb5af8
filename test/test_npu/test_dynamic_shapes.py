"""Shapes that change from step to step: every shape runs, and the compile log tells which ones were compiled, exactly
or, once fuzzy compilation has begun, for ranges."""

import re
import tempfile
from pathlib import Path

from common_utils import TestCase, run_in_process, run_tests

import torch

# Prints, for each step of a loop with a shape of its own, how many operators the device has compiled in it.
LOOP = """
import torch

def step(n):
    before = torch._C._npu_simulatorCounters(0)["ops_compiled"]
    x = torch.arange(n * 3, dtype=torch.float32, device="npu:0").reshape(n, 3)
    y = (x + x) * x
    assert torch.equal(y.cpu(), 2 * torch.arange(n * 3.).reshape(n, 3).square()), n
    print(n, torch._C._npu_simulatorCounters(0)["ops_compiled"] - before)
"""


def compiled(log, mode=None):
    """The IR types that the log shows as compiled, in order; in one mode, or in any."""
    lines = re.findall(r"To compile op, opType = (\w+), mode = (\w+)", log)
    return [op for op, how in lines if mode in (None, how)]


class CompileLogTest(TestCase):
    def run_steps(self, body, **environment):
        """Run LOOP and ``body`` in a process of its own; returns its log and the compilations of each step."""
        with tempfile.TemporaryDirectory() as folder:
            done = run_in_process(
                LOOP + body, ASCEND_GLOBAL_LOG_LEVEL="1", ASCEND_PROCESS_LOG_PATH=folder, **environment
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            log = "".join(path.read_text() for path in Path(folder).glob("plog/*.log"))
        return log, [int(line.split()[1]) for line in done.stdout.splitlines()]

    def test_exact(self):
        log, counts = self.run_steps("for n in (4, 5, 4, 5): step(n)")
        self.assertGreater(counts[0], 0)
        self.assertEqual(counts[1], counts[0])
        # A step with a shape that is known compiles nothing.
        self.assertEqual(counts[2:], [0, 0])
        self.assertEqual([compiled(log).count(op) for op in ("Add", "Mul")], [2, 2])
        self.assertEqual(log.count("Match op type failed, opType = Add"), 1)
        self.assertEqual(log.count("Match op inputs failed, opType = Add"), 1)
        # The line that tools look for follows each of them.
        self.assertEqual(log.count("aclopCompile::aclOp OpType: Add, "), 2)
        self.assertIn("OpType: Add, Input: {float32[4,3] ND, float32[4,3] ND}, Output: {float32[4,3] ND}", log)

    def test_fuzzy_from_a_step_on(self):
        log, counts = self.run_steps(
            "torch.npu.set_start_fuzz_compile_step(3)\n"
            "for n in (4, 5, 6, 7, 8, 8):\n    torch.npu.global_step_inc()\n    step(n)"
        )
        # Steps 1 and 2 compile for their shapes, step 3 for all shapes of the rank, the others nothing.
        self.assertEqual(counts[1], counts[0])
        self.assertEqual(counts[2], counts[0])
        self.assertEqual(counts[3:], [0, 0, 0])
        self.assertEqual(compiled(log, "exact").count("Add"), 2)
        self.assertEqual(compiled(log, "fuzzy").count("Add"), 1)
        self.assertIn("OpType: Add, Input: {float32[-1,-1] ND, float32[-1,-1] ND}, Output: {float32[-1,-1] ND}", log)

    def test_first_step_begins_by_default(self):
        log, counts = self.run_steps("torch.npu.global_step_inc()\nfor n in (4, 5, 6): step(n)")
        self.assertEqual(counts[1:], [0, 0])
        self.assertEqual(compiled(log, "exact"), [])

    def test_other_rank_or_dtype_is_another_range(self):
        _, counts = self.run_steps(
            "torch.npu.global_step_inc()\n"
            "def more(x):\n"
            "    before = torch._C._npu_simulatorCounters(0)['ops_compiled']\n"
            "    y = x + x\n"
            "    print(0, torch._C._npu_simulatorCounters(0)['ops_compiled'] - before)\n"
            "a = [torch.empty(s, device='npu') for s in ((2, 3), (4, 5), (6,), (7,))]\n"
            "b = torch.empty(2, 3, device='npu', dtype=torch.float16)\n"
            "for x in (*a, b): more(x)"
        )
        self.assertEqual(counts, [1, 0, 1, 0, 1])

    def test_enabled_by_the_environment(self):
        log, counts = self.run_steps("for n in (4, 5, 6): step(n)", DYNAMIC_COMPILE_ENABLE="1")
        self.assertEqual(counts[1:], [0, 0])
        self.assertEqual(compiled(log, "exact"), [])

    def test_disabled_for_listed_operators(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write("# compiled for each shape\n  Mul  \n\nSub # not used\n")
            file.flush()
            log, counts = self.run_steps(
                "for n in (4, 5, 6): step(n)", DYNAMIC_COMPILE_ENABLE="1", DISABLE_DYNAMIC_PATH=file.name
            )
        self.assertEqual(counts[1:], [1, 1])
        self.assertEqual(compiled(log, "exact"), ["Mul"] * 3)
        self.assertEqual(compiled(log, "fuzzy").count("Add"), 1)

    def test_listed_operators_only(self):
        log, counts = self.run_steps("for n in (4, 5, 6): step(n)", DYNAMIC_OP="ADD#MUL")
        self.assertEqual(compiled(log, "fuzzy"), ["Add", "Mul"])
        self.assertEqual(counts[1:], [counts[0] - 2] * 2)
        self.assertNotIn("Add", compiled(log, "exact"))

    def test_missing_list(self):
        done = run_in_process(
            "import torch; print(torch.ones(2, device='npu') + 1)", DISABLE_DYNAMIC_PATH="/nowhere/disable.conf"
        )
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("DISABLE_DYNAMIC_PATH: cannot read the file '/nowhere/disable.conf'", done.stderr)

    def test_compile_mode_without_jit(self):
        log, counts = self.run_steps("torch.npu.set_compile_mode(jit_compile=False)\nfor n in (4, 5, 6): step(n)")
        self.assertEqual(counts[1:], [0, 0])
        self.assertEqual(compiled(log, "exact"), [])


class AnyShapeTest(TestCase):
    def test_operators(self):
        torch.manual_seed(0)
        linear = torch.nn.Linear(5, 4)
        conv = torch.nn.Conv2d(2, 3, 3, padding=1)
        operators = {
            "softmax": lambda x: x.softmax(-1),
            "sum": lambda x: x.sum(0),
            "sort": lambda x: x.sort(-1).values,
            "nonzero": lambda x: (x > 0).nonzero(),
            "mask": lambda x: x[x > 0],
            "unique": lambda x: x.round().unique(),
            "cat": lambda x: torch.cat([x, x[:1]]),
            "linear": lambda x: torch.nn.functional.linear(x, linear.weight.to(x.device), linear.bias.to(x.device)),
            "conv": lambda x: torch.nn.functional.conv2d(
                x.expand(2, 2, *x.shape), conv.weight.to(x.device), conv.bias.to(x.device), padding=1
            ),
            "interpolate": lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2),
        }
        with torch.no_grad():
            for n in (1, 2, 3, 7, 16, 33, 65):
                x = torch.randn(n, 5)
                for name, op in operators.items():
                    self.assertEqual(op(x.npu()).cpu(), op(x), msg=f"{name} of {n}", prec=1e-5)


class StepArgumentTest(TestCase):
    def test_refused(self):
        for step, error in ((0, ValueError), (-1, ValueError), ("3", TypeError), (2.0, TypeError), (True, TypeError)):
            with self.assertRaisesRegex(error, "set_start_fuzz_compile_step"):
                torch.npu.set_start_fuzz_compile_step(step)


if __name__ == "__main__":
    run_tests()
