"""Which tests of test_ops.py run, in how many processes, and what came of them: shards, resuming, percentages.

A worker is test_ops.py itself with NPU_OPS_RECORDS set: it appends one JSON line when it begins a test and one when it
is done. Whoever started it goes on behind a test that killed or hung its worker.

Two variables make the tests meet a card's ways: ASCEND_SIM_OPERATORS=cann, a device with those operators only that CANN
documents; NPU_TEST_QUEUE=1, every launch through the task queue, as on a card by default.
"""

import argparse
import collections
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import unittest
import zlib
from pathlib import Path

if os.environ.get("NPU_TEST_QUEUE") == "1":
    os.environ["TASK_QUEUE_ENABLE"] = "2"  # read at the first use of the device

HERE = Path(__file__).resolve().parent
EXCEPTIONS = HERE / "op_exceptions.yaml"
# Share of the tests that a default run takes, and that pytest's does, and seconds after which a test counts as hung.
SHARE = 0.5
PYTEST_SHARE = 0.1
PATIENCE = 300


class Exceptions:
    """The known differences: entries of test, op, dtypes ("all" or a list), reason, and perhaps samples, a pattern that
    finds the names of those samples (with its text, all failures of the test must be such ones), and `where: card` for
    what differs only where CANN's own operators compute."""

    def __init__(self, path: Path = EXCEPTIONS):
        import yaml

        self.entries = collections.defaultdict(list)
        for entry in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
            if set(entry) - {"samples", "where"} != {"test", "op", "dtypes", "reason"} or not entry["reason"]:
                raise ValueError(
                    f"{path.name}: an entry is test, op, dtypes, reason and perhaps samples and where, not {entry}"
                )
            if entry.get("where") == "card" and os.environ.get("ASCEND_SIM_OPERATORS") != "cann":
                continue
            tests, ops = ([v] if isinstance(v, str) else v for v in (entry["test"], entry["op"]))
            for test, op in itertools.product(tests, ops):
                self.entries[test, op].append(entry)

    def find(self, test: str, op: str, dtype, failures: list[str] | None) -> str | None:
        """The reason why these failures ("[sample] text"; None: whatever they are) are no surprise, or None."""
        name = str(dtype).removeprefix("torch.")
        left, reasons = set(failures or ()), []
        for entry in self.entries.get((test, op), ()):
            if entry["dtypes"] == "all" or name in entry["dtypes"]:
                known = {f for f in left if re.search(entry.get("samples", ""), f.partition("]")[0])}
                left -= known
                if known or failures is None:
                    reasons.append(entry["reason"])
        return "; ".join(reasons) if reasons and not left else None


class Records:
    """What a worker writes and its owner reads: JSON lines."""

    def __init__(self, path: str | None):
        self.path = path

    def add(self, **record):
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def read(self) -> list[dict]:
        try:
            with open(self.path, encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []


def chosen(names: list[str], seed: int, share: float) -> list[str]:
    """A part of the tests that depends on the seed alone, about ``share`` of each kind."""
    limit = int(share * 2**32)
    return [name for name in names if zlib.crc32(f"{seed} {name}".encode()) < limit]


def seed() -> int:
    """The seed where no option gives one: NPU_OPS_SEED, or 0."""
    return int(os.environ.get("NPU_OPS_SEED", "0"))


def shard(names: list[str], index: int, count: int) -> list[str]:
    """Part ``index`` of ``count`` (from 1), of about equal work: neighbours in the list cost alike."""
    return names[index - 1 :: count]


def keep(scope: dict, wanted: set[str]) -> None:
    """Take the tests that are not wanted off the classes of a module."""
    for name, case in list(scope.items()):
        if isinstance(case, type) and issubclass(case, unittest.TestCase):
            for test in [t for t in dir(case) if t.startswith("test_")]:
                if f"{name}.{test}" not in wanted and test in vars(case):
                    delattr(case, test)


def all_names(scope: dict) -> list[str]:
    return [
        f"{name}.{test}"
        for name, case in sorted(scope.items())
        if isinstance(case, type) and issubclass(case, unittest.TestCase)
        for test in sorted(vars(case))
        if test.startswith("test_")
    ]


# ---- The owner ----


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Operators on npu against the CPU.")
    parser.add_argument("--all", action="store_true", help="every test, not only a part chosen by the seed")
    parser.add_argument("--seed", type=int, default=seed(), help="chooses the part")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="part I (from 1) of N of the tests")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--records", metavar="FILE", help="results so far; a run that finds them goes on from there")
    parser.add_argument("--minutes", type=float, metavar="N", help="stop after so long; --records goes on from there")
    parser.add_argument("-k", dest="pattern", action="append", metavar="TEXT", help="only tests whose name holds TEXT")
    parser.add_argument("--list", action="store_true", help="print the names of the tests and leave")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the operators that were not native")
    return parser.parse_args()


def main(scope: dict) -> int:
    args = arguments()
    names = all_names(scope)
    if args.pattern:
        names = [name for name in names if any(p in name for p in args.pattern)]
    elif not args.all:
        names = chosen(names, args.seed, SHARE)
    index, count = (int(part) for part in args.shard.split("/"))
    names = shard(names, index, count)
    if args.list:
        print("\n".join(names))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        records = Records(args.records or os.path.join(folder, "records"))
        done = {r["test"] for r in records.read() if "right" in r}
        left = [name for name in names if name not in done]
        if done:
            print(f"{len(done)} of {len(names)} tests are done already", flush=True)
        random.Random(0).shuffle(left)  # costly tests lie side by side
        started = time.monotonic()
        owners = [Owner(left[job :: args.jobs], records.path, folder, job, args.all) for job in range(args.jobs)]
        until = started + 60 * args.minutes if args.minutes else float("inf")
        try:
            while owners and time.monotonic() < until:
                owners = [owner for owner in owners if owner.alive()]
                time.sleep(0.5)
        finally:
            for owner in owners:
                owner.stop()
        results = [r for r in records.read() if "right" in r and r["test"] in set(names)]
        return summary(results, time.monotonic() - started, args)


class Owner:
    """Keeps one worker going until its tests are done."""

    def __init__(self, names: list[str], records: str, folder: str, job: int, everything: bool):
        self.everything = everything
        self.names, self.records, self.job = names, f"{records}.{job}", job
        self.target = records
        self.list = os.path.join(folder, f"tests.{job}")
        self.log = os.path.join(folder, f"log.{job}")
        Path(self.records).unlink(missing_ok=True)
        self.process = None
        self._start()

    def _start(self):
        if not self.names:
            self.process = None
            return
        Path(self.list).write_text("\n".join(self.names), encoding="utf-8")
        environment = {**os.environ, "NPU_OPS_RECORDS": self.records, "NPU_OPS_TESTS": self.list}
        environment.setdefault("OMP_NUM_THREADS", "1")
        environment.pop("NPU_FALLBACK", None)
        if not self.everything:
            environment["NPU_OPS_LIMIT"] = "1"
        with open(self.log, "w", encoding="utf-8") as log:
            command = [sys.executable, str(HERE / "test_ops.py")]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def stop(self):
        """End the worker; the test that it was in counts as not begun."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            self._hand_over()

    def _hand_over(self) -> tuple[list[str], set[str]]:
        """Move what the worker wrote to the common records; the names begun and finished."""
        records = Records(self.records).read()
        with open(self.target, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(r) + "\n" for r in records if "test" in r)
        Path(self.records).unlink(missing_ok=True)
        return [r["begin"] for r in records if "begin" in r], {r["test"] for r in records if "test" in r}

    def alive(self) -> bool:
        if self.process is None:
            return False
        status = self.process.poll()
        if status is None:
            return True
        begun, finished = self._hand_over()
        lost = [name for name in begun if name not in finished]
        target = Records(self.target)
        for name in lost:
            text = Path(self.log).read_text(encoding="utf-8", errors="replace")[-3000:]
            what = "hung" if "Timeout (" in text else f"killed its process (status {status})"
            target.add(test=name, right=0, wrong=1, failures=[f"{what}: {text[:600]}"], lost=True)
        if not begun and self.names:
            sys.stderr.write(Path(self.log).read_text(encoding="utf-8", errors="replace"))
            for name in self.names:
                target.add(test=name, right=0, wrong=0, refused=1, failures=["the worker did not start"], lost=True)
            finished = set(self.names)
        self.names = [name for name in self.names if name not in finished and name not in lost]
        self._start()
        return True


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


def summary(results: list[dict], seconds: float, args: argparse.Namespace) -> int:
    """Print percentages and what failed; 0 where everything is right or a listed exception."""
    total = collections.Counter()
    kinds = collections.defaultdict(collections.Counter)
    foreign = collections.Counter()
    failed, excepted = [], []
    for r in results:
        for key in ("right", "wrong", "refused", "native", "metered", "random", "skipped"):
            total[key] += r.get(key, 0)
            kinds[r["test"].rpartition(".")[2].split("_")[1]][key] += r.get(key, 0)
        for name in r.get("foreign", []):
            foreign[name] += 1
        if r.get("failures"):
            (excepted if r.get("excepted") else failed).append(r)
    for r in sorted(excepted, key=lambda r: r["test"]) if args.verbose else ():
        print(f"EXCEPTION {r['test']}: {r['excepted']}: {r['failures'][0]}")
    for r in sorted(failed, key=lambda r: r["test"]):
        print(f"FAIL {r['test']}: {len(r['failures'])} samples: {r['failures'][0][:1000]}")
    if args.verbose and foreign:
        print("not native: " + ", ".join(f"{name} ({n})" for name, n in foreign.most_common()))
    print(f"\n{'':12}{'samples':>9}{'right':>10}{'wrong':>7}{'refused':>9}{'native':>10}{'random':>8}{'skipped':>9}")
    for kind, c in [*sorted(kinds.items()), ("all", total)]:
        whole = c["right"] + c["wrong"] + c["refused"]
        print(
            f"{kind:12}{whole:9}{percent(c['right'], whole):>10}{c['wrong']:7}{c['refused']:9}"
            f"{percent(c['native'], c['metered']):>10}{c['random']:8}{c['skipped']:9}"
        )
    if os.environ.get("ASCEND_SIM_OPERATORS") == "cann":
        print(f"on a card {percent(total['native'], total['metered'])} of the samples would run natively")
    seed = "" if args.all or args.pattern else f", seed {args.seed}"
    print(f"{len(results)} tests in {seconds:.0f} s{seed}; {len(excepted)} listed exceptions; {len(failed)} failed")
    print("FAILED" if failed else "OK")
    return 1 if failed else 0
