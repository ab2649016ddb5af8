"""Upstream's own tests of torch.distributed (torch.testing._internal.distributed.distributed_test, written for nccl and
cuda), for hccl and npu, on two ranks. Slow: NPU_SLOW_TESTS=1.

    NPU_SLOW_TESTS=1 python test_upstream.py             all tests (about ten minutes), with a table of what was skipped
    python test_upstream.py test_all_reduce_sum_cuda     some of them
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZE = 2
LIMIT = 600  # seconds of one test

# Test: why it does not apply to hccl on npu.
DOES_NOT_APPLY = {
    "test_get_backend": "the back end's name is hccl, also where a script asks for nccl",
}


class Ranks:
    """Processes that run one test after another."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        environment = dict(
            os.environ,
            ASCEND_SIM_DEVICE_COUNT=str(SIZE),
            OMP_NUM_THREADS="1",
            BACKEND="nccl",
            WORLD_SIZE=str(SIZE),
            TEMP_DIR=folder,
            MASTER_ADDR="127.0.0.1",
        )
        for name in ("barrier", "test_dir", "init_dir"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        self.log = open(os.path.join(folder, "log"), "wb+")  # noqa: SIM115
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(HERE / "upstream_rank.py"), str(rank)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
            )
            for rank in range(SIZE)
        ]
        self.tests = self._answers()[0]

    def _answers(self):
        """A line of each rank, None of one that ended or did not answer in time."""
        answers = [None] * SIZE
        done: queue.Queue = queue.Queue()

        def read(i):
            line = self.ranks[i].stdout.readline()
            answers[i] = json.loads(line) if line else None
            done.put(i)

        for i in range(SIZE):
            threading.Thread(target=read, args=(i,), daemon=True).start()
        try:
            for _ in range(SIZE):
                done.get(timeout=LIMIT)
        except queue.Empty:
            for rank in self.ranks:
                rank.kill()
        return answers

    def run(self, name: str):
        """(outcome, reason) over all ranks; None where a rank ended or hung."""
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
            os.unlink(file.name)
        for rank in self.ranks:
            rank.stdin.write(f"{name} {file.name}\n")
            rank.stdin.flush()
        answers = self._answers()
        answers = [a or ["wrong", f"rank {i} ended, or did not answer"] for i, a in enumerate(answers)]
        for outcome in ("wrong", "skipped", "right"):
            reasons = [f"rank {i}: {a[1]}" if a[1] else "" for i, a in enumerate(answers) if a[0] == outcome]
            if reasons:
                return outcome, "\n".join(filter(None, reasons))
        return None

    def end(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()
            rank.stdin.close()
            rank.stdout.close()
        self.log.close()


def run_all(names=()):
    """Outcome and reason by test. What was wrong is tried once more by fresh processes: state may have been left."""
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(tempfile.mkdtemp(dir=folder))
        try:
            for name in names or ranks.tests:
                if name in DOES_NOT_APPLY:
                    outcomes[name] = "skipped", DOES_NOT_APPLY[name]
                    continue
                for _ in range(2):
                    outcomes[name] = ranks.run(name)
                    if outcomes[name][0] != "wrong":
                        break
                    ranks.end()
                    ranks = Ranks(tempfile.mkdtemp(dir=folder))
                if __name__ == "__main__":
                    print(f"{outcomes[name][0]:8s}{name}", flush=True)
        finally:
            ranks.end()
    return outcomes


class TestUpstream(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS"), "NPU_SLOW_TESTS=1: three hundred tests")
    def test_upstreams_tests(self):
        outcomes = run_all()
        self.assertGreater(sum(outcome == "right" for outcome, _ in outcomes.values()), 100)
        for name, (outcome, reason) in outcomes.items():
            with self.subTest(name):
                self.assertNotEqual(outcome, "wrong", reason)

    def test_some_of_them(self):
        """The way itself, without the long run."""
        for name, (outcome, reason) in run_all(["test_all_reduce_sum_cuda", "test_nccl_high_priority_stream"]).items():
            self.assertEqual(outcome, "right", f"{name}: {reason}")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("test_"):
        for test, (result, why) in run_all(sys.argv[1:]).items():
            print(f"{test}: {result} {why}")
    else:
        unittest.main()
