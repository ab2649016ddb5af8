"""The benchmarks' way of measuring (taking turns, refusing a loaded machine), and that each of them runs to its end."""

import argparse
import contextlib
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import _common
from common_utils import TestCase, run_tests

ROOT = Path(__file__).resolve().parents[2]


def run_script(name: str, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(ROOT / name), *options], capture_output=True, text=True, timeout=300)


class TestMeasuring(TestCase):
    def test_candidates_take_turns(self):
        calls = []
        candidates = {name: lambda name=name: calls.append(name) for name in "ab"}
        best = _common.best_of(candidates, rounds=2, warm_up=1, settle=lambda: calls.append("-"))
        self.assertEqual("".join(calls), "a-b-" * 3)
        self.assertEqual(set(best), {"a", "b"})
        self.assertTrue(all(0 <= seconds < 1 for seconds in best.values()))

    def test_targets(self):
        targets = _common.Targets()
        targets.at_least("speed", 1.2, 1.1)
        targets.at_most("memory", 1.5, 1.3)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            targets.show()
        self.assertEqual(
            output.getvalue().splitlines(),
            [
                "met     speed: 1.200 (target: at least 1.1)",
                "MISSED  memory: 1.500 (target: at most 1.3)",
                "targets: 1 of 2 met",
            ],
        )

    def measure(self, foreign_cores: list[float], allow: bool = False) -> str:
        """What a measurement prints where the other processes use so many cores before, and during it."""
        options = argparse.Namespace(allow_load=allow, wait=0.0)
        output = io.StringIO()
        shares = mock.patch.object(_common.Machine, "_foreign_cores", mock.Mock(side_effect=foreign_cores))
        with shares, mock.patch("time.sleep"), contextlib.redirect_stdout(output), _common.Machine(options):
            print("figures")
        return output.getvalue()

    def test_refuses_a_loaded_machine(self):
        self.assertEqual(self.measure([0.0, 0.1]), "figures\n")
        for shares in ([0.9], [0.0, 0.9]):
            with self.assertRaises(SystemExit) as caught:
                self.measure(shares)
            self.assertEqual(caught.exception.code, _common.STATUS_LOADED)
        self.assertIn("other processes used 0.90 cores before the measurement", self.measure([0.9, 0.9], allow=True))

    def test_own_work_is_not_foreign(self):
        since = _common._busy_seconds()
        sum(range(3_000_000))
        subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
        machine, own = (after - before for after, before in zip(_common._busy_seconds(), since, strict=True))
        self.assertGreater(own, 0)
        # The machine's clock ticks in hundredths of a second on each core.
        self.assertGreaterEqual(machine, own - 0.1)


class TestScripts(TestCase):
    def check(self, name: str, *options: str, lines: list[str]) -> None:
        done = run_script(name, "--allow-load", "--wait", "0", *options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for line in lines:
            self.assertRegex(done.stdout, line)

    def test_op_overhead(self):
        lines = [
            r"one-element add, host time: cpu [\d.]+ us, npu [\d.]+ us",
            r"\(x \+ x\)\.item\(\)",
            r"targets: \d of [23] met",
        ]
        self.check("benchmarks/op_overhead.py", "--rounds", "1", "--import-rounds", "1", lines=lines)

    def test_ops(self):
        lines = [
            r"4 operators, 36 cases",
            r"(MISSED|met   )  npu / cpu, medium, geometric mean: [\d.]+",
            r"the ten worst, with synchronisation:\n +[\d.]+  \w+ medium \w+ \w+: \d+ IR operators?",
            r"the ten worst of the small ones, host time:",
            r"targets: \d of 2 met",
        ]
        options = ("--rounds", "1", "--sizes", "small", "medium", "--only", "add", "exp", "mm", "sum")
        self.check("benchmarks/ops.py", *options, lines=lines)

    def test_resnet50(self):
        lines = [r"step at 64 px, batch 64: cpu \d+ ms .*, npu \d+ ms", r"targets: \d of 1 met"]
        self.check("benchmarks/resnet50.py", "--case", "64", "--rounds", "1", "--no-memory", lines=lines)

    def test_aoe(self):
        lines = [r"graphs: \d+ tuned", r"MLP +untuned +[\d.]+ ms  tuned +[\d.]+ ms", r"targets: \d of 2 met"]
        self.check("benchmarks/aoe.py", "--only", "MLP", "--rounds", "1", "--steps", "2", lines=lines)

    def test_loaded(self):
        lines = [
            r"beside 0: perceptron +cpu +[\d.]+ ms  npu +[\d.]+ ms  npu / cpu +[\d.]+",
            r"beside 1: layer norm",
            r"targets: \d of 4 met",
        ]
        options = ("--only", "perceptron", "layer norm", "--busy", "0", "1", "--seconds", "0.1")
        self.check("benchmarks/loaded.py", *options, lines=lines)

    def test_models_and_layers(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, options, lines in (
                (
                    "models",
                    ("--only", "mlp"),
                    [r"mlp +train +cpu +[\d.]+ ms", r"mlp +autocast", r"targets: \d of 4 met"],
                ),
                (
                    "compile",
                    ("--only", "mlp"),
                    [r"mlp +train +eager +[\d.]+ ms  compiled", r"mlp +inference", r"targets: \d of 2 met"],
                ),
                ("layers", ("--only", "relu", "gru", "--sizes", "small"), [r"gru +small", r"targets: \d of 3 met"]),
                (
                    "affinity",
                    ("--only", "module.Mish", "function.roll", "--sizes", "small", "--cpu-time"),
                    [r"module\.Mish +small", r"function\.roll +small .*the same", r"targets: \d of 1 met"],
                ),
            ):
                file = f"{folder}/{name}.json"
                options = (*options, "--rounds", "1", "--json", file)
                self.check(f"benchmarks/{name}.py", *options, lines=lines)
                lines = [r"slower than in .*json: \d", *lines]
                self.check(f"benchmarks/{name}.py", *options, "--compare", file, lines=lines)

    def test_attention(self):
        lines = [
            r"sdpa short fp32 +forward +cpu +[\d.]+ ms",
            r"fusion short fp32 +backward",
            r"cpu / npu, geometric mean: sdpa [\d.]+, fusion [\d.]+",
        ]
        options = ("--only", "short", "--dtypes", "fp32", "--rounds", "1", "--no-memory")
        self.check("benchmarks/attention.py", *options, lines=lines)
        done = run_script("benchmarks/attention.py", "--memory-of", "npu fusion", "short", "fp16", "forward")
        self.assertGreater(float(done.stdout), 0)

    def test_overlap(self):
        done = run_script("examples/overlap.py", "--side", "300", "--repeat", "4")
        self.assertIn("the host is back from a 3000 x 3000 matmul after", done.stdout, done.stderr)
        self.assertRegex(done.stdout, r"two streams of npu:0: .*of the shorter overlaps")


if __name__ == "__main__":
    run_tests()
