#!/usr/bin/env python3
"""Compares collectives of npu tensors (hccl, simulated devices) with Gloo's of CPU tensors.

Each number of ranks is a job of its own: as many processes, each with one thread and one simulated device, each with a
group of either back end. A collective runs once on Gloo and once on hccl in turn, so that both meet the same machine;
a round's time is that of the slowest rank, from a barrier to the result (npu is synchronised); the median counts.
Bus bandwidth is what each rank's link would carry, as NCCL's tests define it: bytes / time, times 2(n-1)/n for
all_reduce, (n-1)/n for all_gather, reduce_scatter and all_to_all, 1 for broadcast. A size is that of the whole tensor.
More ranks than cores wait for each other's turn: they are reported, and have no target.
Exit status 0 says that the figures are valid, whether or not they meet the targets.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch.distributed as dist
from _common import Machine, Targets, add_arguments, describe_machine, require_npu

import torch

SIZES = tuple(4096 << (2 * i) for i in range(9))  # 4 KiB to 256 MiB
LARGE = 1 << 20
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")


def bus_factor(name: str, ranks: int) -> float:
    """Bytes over a rank's link for each byte of the tensor."""
    return {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(name, (ranks - 1) / ranks)


def call_of(name: str, device: str, size: int, group: dist.ProcessGroup) -> Callable[[], None]:
    """One collective on a tensor of `size` bytes in all, in fp32."""
    ranks = dist.get_world_size()
    whole = torch.ones(size // 4, device=device)
    part = torch.ones(size // 4 // ranks, device=device)
    other = torch.ones_like(whole) if name == "all_to_all" else None
    if name == "all_reduce":
        return lambda: dist.all_reduce(whole, dist.ReduceOp.MAX, group=group)
    if name == "broadcast":
        return lambda: dist.broadcast(whole, 0, group=group)
    if name == "all_gather":
        return lambda: dist.all_gather_single(whole, part, group=group)
    if name == "reduce_scatter":
        return lambda: dist.reduce_scatter_single(part, whole, dist.ReduceOp.MAX, group=group)
    return lambda: dist.all_to_all_single(other, whole, group=group)


def rounds_for(size: int, rounds: int) -> int:
    return rounds if size <= 16 << 20 else max(5, rounds // 3)


def rank_main(args: argparse.Namespace) -> None:
    """What one rank runs: prints its seconds of each round, by collective, size and device."""
    torch.set_num_threads(1)
    torch.npu.set_device(args.rank)
    dist.init_process_group(
        "cpu:gloo,npu:hccl", init_method=f"tcp://127.0.0.1:{args.port}", rank=args.rank, world_size=args.ranks
    )
    group = dist.group.WORLD
    result = {}
    for name in args.collectives:
        for size in args.sizes:
            calls = {device: call_of(name, device, size, group) for device in ("cpu", "npu")}
            times = {device: [] for device in calls}
            for turn in range(2 + rounds_for(size, args.rounds)):
                for device, call in calls.items():
                    # A barrier of Gloo's before each: nobody's wait for a late rank counts.
                    dist.all_reduce(torch.zeros(1), group=group)
                    start = time.perf_counter()
                    call()
                    if device == "npu":
                        torch.npu.synchronize()
                    if turn >= 2:
                        times[device].append(time.perf_counter() - start)
            result[f"{name} {size}"] = times
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(result))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_job(ranks: int, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Median seconds of either device by collective and size, of the slowest rank in each round."""
    environment = dict(os.environ, ASCEND_SIM_DEVICE_COUNT=str(ranks), ASCEND_SIM_THREADS="1", OMP_NUM_THREADS="1")
    environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    command = [sys.executable, __file__, "--ranks", str(ranks), "--port", str(free_port())]
    command += ["--rounds", str(args.rounds), "--sizes", *map(str, args.sizes), "--collectives", *args.collectives]
    processes = [
        subprocess.Popen([*command, "--rank", str(rank)], env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=1200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        sys.exit(f"collectives.py: ranks of {ranks} ended with {[process.returncode for process in processes]}")
    results = [json.loads(text) for text in outputs]
    return {
        key: {
            device: statistics.median(map(max, zip(*(result[key][device] for result in results), strict=True)))
            for device in times
        }
        for key, times in results[0].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="jobs to run (default: 2 4 8)")
    parser.add_argument("--rounds", type=int, default=20, help="rounds that count (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes of the whole tensor")
    parser.add_argument("--collectives", nargs="+", default=list(COLLECTIVES), choices=COLLECTIVES)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        args.ranks = args.ranks[0]
        rank_main(args)
        return
    require_npu()
    cores = len(os.sched_getaffinity(0))
    if not args.json:
        print(describe_machine())
    targets, figures = Targets(), {}
    with Machine(args) as machine:
        for ranks in args.ranks:
            for key, medians in run_job(ranks, args).items():
                name, size = key.split()[0], int(key.split()[1])
                ratio = medians["cpu"] / medians["npu"]
                bandwidth = {device: size / t * bus_factor(name, ranks) / 1e9 for device, t in medians.items()}
                figures[f"{ranks} {key}"] = {
                    "seconds": medians,
                    "bus_bandwidth_GBps": bandwidth,
                    "gloo_time_over_hccl_time": ratio,
                }
                if not args.json:
                    print(
                        f"{ranks} ranks {name:14s} {size / 1024:9.0f} KiB  gloo {medians['cpu'] * 1e3:8.3f} ms "
                        f"{bandwidth['cpu']:6.2f} GB/s  hccl {medians['npu'] * 1e3:8.3f} ms {bandwidth['npu']:6.2f} "
                        f"GB/s  ratio {ratio:5.2f}",
                        flush=True,
                    )
                if ranks == 2 and ranks <= cores:
                    what = f"{name}, {size // 1024} KiB, 2 ranks: hccl / gloo"
                    targets.at_least(what, ratio, 2.0 if size >= LARGE else 0.95)
    if args.json:
        print(json.dumps({"figures": figures, "foreign_cores": machine.foreign, "targets": targets.lines}))
        return
    targets.show()


if __name__ == "__main__":
    main()
