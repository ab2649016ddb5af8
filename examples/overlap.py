#!/usr/bin/env python3
"""Shows that the device works behind the host's back, and that two streams, and two devices, work at the same time.

It prints, with event time stamps and host clocks:
1. how soon the host is back from a 3000 x 3000 matmul, as a share of the matmul's own time (at most 10 %);
2. two streams of npu:0: by how much the spans of their work overlap on the device's clock;
3. npu:0 and npu:1: the same, on the host's clock, from each one's first matmul to its last.
A simulated device shares the host's cores: overlapping work takes as long in total as one after the other, but both are
under way at once. Exit status 1 if a span does not overlap or the host waits.
"""

import argparse
import sys
import time

import torch

if not (hasattr(torch, "npu") and torch.npu.is_available()):
    sys.exit("overlap.py: this PyTorch has no NPU")


def work(x: torch.Tensor, repeat: int) -> torch.Tensor:
    for _ in range(repeat):
        y = x @ x
    return y


def overlap(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Share of the shorter span that lies within the other one."""
    common = min(first[1], second[1]) - max(first[0], second[0])
    return max(common, 0.0) / min(first[1] - first[0], second[1] - second[0])


def host_returns(side: int) -> float:
    """Seconds until the host is back from a matmul / seconds of the matmul."""
    x = torch.randn(side, side, device="npu:0")
    x @ x
    torch.npu.synchronize()
    start = time.perf_counter()
    x @ x
    issued = time.perf_counter()
    torch.npu.synchronize()
    return (issued - start) / (time.perf_counter() - start)


def two_streams(side: int, repeat: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """The span of each stream's work in ms since a common event."""
    x = torch.randn(side, side, device="npu:0")
    work(x, 1)
    torch.npu.synchronize()
    origin = torch.npu.Event(enable_timing=True)
    origin.record()
    origin.synchronize()
    marks = []
    for stream in (torch.npu.Stream(), torch.npu.Stream()):
        begin, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
        with torch.npu.stream(stream):
            begin.record()
            work(x, repeat)
            end.record()
        marks.append((begin, end))
    torch.npu.synchronize()
    spans = [(origin.elapsed_time(begin), origin.elapsed_time(end)) for begin, end in marks]
    return spans[0], spans[1]


def two_devices(side: int, repeat: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """The span of each device's work in ms of the host's clock: from its first matmul seen to be over to its last."""
    tensors = [torch.randn(side, side, device=f"npu:{index}") for index in range(2)]
    for index, x in enumerate(tensors):
        work(x, 1)
        torch.npu.synchronize(index)
    ends: list[tuple[torch.npu.Event, torch.npu.Event]] = []
    start = time.perf_counter()
    for index, x in enumerate(tensors):
        with torch.npu.device(index):
            marks = (torch.npu.Event(), torch.npu.Event())
            for repeats, mark in zip((1, repeat), marks, strict=True):
                work(x, repeats)
                mark.record()
            ends.append(marks)
    seen: dict[tuple[int, int], float] = {}
    while len(seen) < 4:
        time.sleep(0.0005)
        for device, marks in enumerate(ends):
            for which, mark in enumerate(marks):
                if (device, which) not in seen and mark.query():
                    seen[device, which] = (time.perf_counter() - start) * 1e3
    return (seen[0, 0], seen[0, 1]), (seen[1, 0], seen[1, 1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=1000, help="side of the overlapping matmuls (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=8, help="matmuls per stream or device (default: %(default)s)")
    args = parser.parse_args()
    share = min(host_returns(3000) for _ in range(3))
    print(f"the host is back from a 3000 x 3000 matmul after {share * 100:.2f} % of its time")
    good = share <= 0.1
    cases = {"two streams of npu:0": two_streams}
    if torch.npu.device_count() > 1:
        cases["npu:0 and npu:1"] = two_devices
    for name, measure in cases.items():
        spans = measure(args.side, args.repeat)
        common = overlap(*spans)
        good = good and common > 0
        text = " and ".join(f"{begin:.1f}-{end:.1f} ms" for begin, end in spans)
        print(f"{name}: {text}: {common * 100:.0f} % of the shorter overlaps")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
