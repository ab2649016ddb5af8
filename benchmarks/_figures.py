"""What the benchmarks over networks or layers share: one table of ratios as JSON, compared with an earlier one."""

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

SLOWER = 0.9  # of an earlier ratio: below it --compare names the case


@dataclass
class Figure:
    """One case measured on both devices (or in two ways, the slower first), in milliseconds."""

    name: str
    mode: str
    cpu_ms: float
    npu_ms: float

    @property
    def ratio(self) -> float:
        """How many times as fast npu is."""
        return self.cpu_ms / self.npu_ms

    def show(self, sides: tuple[str, str] = ("cpu", "npu")) -> None:
        """`sides`: what the two times are of."""
        first, second = sides
        print(
            f"{self.name:24} {self.mode:10} {first} {self.cpu_ms:9.3f} ms  {second} {self.npu_ms:9.3f} ms  "
            f"{first} / {second} {self.ratio:5.2f}",
            flush=True,
        )


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    parser.add_argument("--compare", metavar="FILE", help="say what became slower since the figures of --json there")


def keep(figures: list[Figure], args: argparse.Namespace) -> None:
    """Does what --compare and --json ask for. The file to compare with is read first: it may be the one written."""
    if args.compare:
        earlier = {(f["name"], f["mode"]): Figure(**f) for f in json.loads(Path(args.compare).read_text())}
        slower = [
            (f.ratio / earlier[f.name, f.mode].ratio, f, earlier[f.name, f.mode])
            for f in figures
            if (f.name, f.mode) in earlier and f.ratio < SLOWER * earlier[f.name, f.mode].ratio
        ]
        print(f"slower than in {args.compare}: {len(slower)}")
        for _, now, before in sorted(slower, key=lambda each: each[0]):
            print(f"  {now.name} {now.mode}: cpu / npu {before.ratio:.2f} before, {now.ratio:.2f} now")
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(f) for f in figures], indent=1) + "\n")
