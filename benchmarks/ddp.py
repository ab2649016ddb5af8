#!/usr/bin/env python3
"""Compares training ResNet-50 on two simulated devices (DistributedDataParallel over hccl) with training it on one.

Two ranks have one thread each and half of the batch; one rank has two threads and the whole batch: the same cores do
the same work, so what the ratio of images/s lacks to 1 is the price of communication and of waiting for each other. The
two kinds of job take turns (processes that live through the whole measurement and wait for their turn); medians count.
The share of communication that is hidden behind the backward pass comes from a third kind of step, without gradients'
exchange (no_sync): hidden = 1 - (step - step without exchange) / time of the exchange alone.
Exit status 0 says that the figures are valid, whether or not they meet the target.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import torch.distributed as dist
from _common import Machine, Targets, add_arguments, describe_machine, require_npu

import torch
from torch import nn

TARGET = 0.9


def make_step(size: int, batch: int, pixels: int, rank: int):
    """(function that takes a step, with the exchange of gradients or without; function that only exchanges)"""
    import torchvision

    torch.manual_seed(0)
    net = torchvision.models.resnet50().npu()
    gradients = [torch.zeros_like(p) for p in net.parameters()]
    if size > 1:
        net = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch // size, 3, pixels, pixels).npu()
    labels = torch.randint(1000, (batch // size,)).npu()

    def step(exchange: bool = True) -> None:
        with contextlib.nullcontext() if exchange or size == 1 else net.no_sync():
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
        torch.npu.synchronize()

    def exchange() -> None:
        for gradient in gradients:
            dist.all_reduce(gradient, async_op=True)
        torch.npu.synchronize()

    return step, exchange


def rank_main(args: argparse.Namespace) -> None:
    """Takes a turn for each line of the standard input, and answers with its seconds."""
    size, rank = args.size, args.rank
    torch.set_num_threads(args.threads)
    torch.npu.set_device(rank)
    if size > 1:
        dist.init_process_group("hccl", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=size)
    step, exchange = make_step(size, args.batch, args.pixels, rank)
    turns = {"step": step, "alone": lambda: step(False), "exchange": exchange}
    for line in sys.stdin:
        if size > 1:
            dist.barrier()
        start = time.perf_counter()
        turns[line.strip()]()
        print(json.dumps(time.perf_counter() - start), flush=True)
    if size > 1:
        dist.destroy_process_group()


class Job:
    """The processes of one kind."""

    def __init__(self, size: int, args: argparse.Namespace) -> None:
        threads = 2 // size
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = dict(
            os.environ,
            ASCEND_SIM_DEVICE_COUNT=str(size),
            ASCEND_SIM_THREADS=str(threads),
            OMP_NUM_THREADS=str(threads),
        )
        command = [sys.executable, __file__, "--size", str(size), "--port", str(port), "--threads", str(threads)]
        command += ["--batch", str(args.batch), "--pixels", str(args.pixels)]
        self.ranks = [
            subprocess.Popen(
                [*command, "--rank", str(rank)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def turn(self, kind: str) -> float:
        """Seconds of the slowest rank."""
        for rank in self.ranks:
            rank.stdin.write(kind + "\n")
            rank.stdin.flush()
        lines = [rank.stdout.readline() for rank in self.ranks]
        if not all(lines):
            sys.exit("ddp.py: a rank ended; its output is above")
        return max(map(json.loads, lines))

    def end(self) -> None:
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            try:
                rank.wait(30)
            finally:
                rank.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--rounds", type=int, default=12, help="rounds that count (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images of a step, over all ranks (default: %(default)s)")
    parser.add_argument("--pixels", type=int, default=64, help="of an image's side (default: %(default)s)")
    for name in ("rank", "size", "port", "threads"):
        parser.add_argument(f"--{name}", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        rank_main(args)
        return
    require_npu()
    if not args.json:
        print(describe_machine())
    times = {kind: [] for kind in ("one", "step", "alone", "exchange")}
    # The ranks begin and end inside: only of processes that have been waited for is known what they used.
    with Machine(args) as machine:
        jobs = Job(1, args), Job(2, args)
        try:
            for turn in range(2 + args.rounds):
                seconds = {"one": jobs[0].turn("step")}
                seconds |= {kind: jobs[1].turn(kind) for kind in ("step", "alone", "exchange")}
                if turn >= 2:
                    for kind, value in seconds.items():
                        times[kind].append(value)
        finally:
            for job in jobs:
                job.end()
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    exposed = max(0.0, medians["step"] - medians["alone"])
    hidden = max(0.0, 1 - exposed / medians["exchange"])
    targets = Targets()
    targets.at_least("images/s of 2 ranks / of 1 rank", medians["one"] / medians["step"], TARGET)
    if args.json:
        print(json.dumps({"seconds": medians, "hidden": hidden, "foreign_cores": machine.foreign}))
        return
    print(
        f"a step of {args.batch} images of {args.pixels} px: 1 rank with 2 threads {medians['one'] * 1e3:.0f} ms, "
        f"2 ranks with 1 thread {medians['step'] * 1e3:.0f} ms "
        f"({medians['alone'] * 1e3:.0f} ms without exchanging gradients)"
    )
    print(f"exchange alone {medians['exchange'] * 1e3:.1f} ms, of which {hidden:.0%} is hidden behind the step")
    targets.show()


if __name__ == "__main__":
    main()
