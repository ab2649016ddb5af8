#!/usr/bin/env python3
"""Compares attention on npu:0, npu_fusion_attention and scaled_dot_product_attention, with upstream's CPU kernel.

All take turns in one process, the best of N counts; forward, and forward with backward. The peak memory of each is
that of a process of its own, beyond what it has before. Results are compared, too. Exit status 0 says that the figures
are valid, whether or not they meet the targets; 3 that other processes were in the way.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Callable

import _figures
from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu
from _figures import Figure, geometric_mean
from torch.nn import functional as F

import torch
from torch import Tensor

# Name: (batch, heads, heads of keys, positions, width of a head, causal).
SHAPES = {
    "short": (8, 8, 8, 128, 64, True),
    "encoder": (2, 8, 8, 512, 64, False),
    "grouped": (1, 16, 4, 1024, 64, True),
    "wide": (1, 4, 4, 1024, 128, True),
    "2k": (1, 8, 8, 2048, 64, True),
    "8k": (1, 2, 2, 8192, 64, True),
}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Of results against fp32 on the CPU, relative to the largest.
TOLERANCE = {"fp32": 1e-5, "fp16": 5e-3, "bf16": 3e-2}
SLOWER = 1.2  # times the CPU's, for 8k positions in fp16
FORMS = ("cpu", "npu sdpa", "npu fusion")


def operands(shape: str, dtype: str, device: str, gradients: bool) -> list[Tensor]:
    batch, heads, key_heads, positions, width, _ = SHAPES[shape]
    generator = torch.Generator().manual_seed(0)
    made = (torch.randn(batch, h, positions, width, generator=generator) for h in (heads, key_heads, key_heads))
    return [x.to(device, DTYPES[dtype]).requires_grad_(gradients) for x in made]


def attention(form: str, shape: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The operator that is measured."""
    _, heads, key_heads, _, width, causal = SHAPES[shape]
    if form != "npu fusion":
        grouped = {"enable_gqa": True} if key_heads != heads else {}
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)
    options = {"scale": 1 / math.sqrt(width)}
    if causal:
        # The mask of sparse mode 2 has this size whatever the lengths are.
        hidden = torch.ones(2048, 2048, dtype=torch.bool).triu(1).to("npu:0")
        options |= {"atten_mask": hidden, "sparse_mode": 2}
    return lambda q, k, v: torch.ops.npu.npu_fusion_attention(q, k, v, heads, "BNSD", **options)[0]


def prepared(form: str, shape: str, dtype: str, mode: str) -> Callable[[], list[Tensor]]:
    """One run, waited for: the result, and with "backward" the gradients."""
    device = "cpu" if form == "cpu" else "npu:0"
    backward = mode == "backward"
    inputs = operands(shape, dtype, device, backward)
    call = attention(form, shape)
    gradient = torch.ones_like(inputs[0]) if backward else None
    wait = torch.npu.synchronize if device != "cpu" else lambda: None

    def run() -> list[Tensor]:
        out = call(*inputs)
        found = [out, *torch.autograd.grad(out, inputs, gradient)] if backward else [out]
        wait()
        return found

    return run


def check(shape: str, dtype: str) -> None:
    """Exits where a result or gradient of an npu form is not fp32's on the CPU."""
    expected = prepared("cpu", shape, "fp32", "backward")()
    for form in FORMS[1:]:
        found = prepared(form, shape, dtype, "backward")()
        for name, a, b in zip(("result", "gradient of q", "of k", "of v"), found, expected, strict=True):
            off = ((a.float().cpu() - b).abs().max() / b.abs().max()).item()
            if not off <= TOLERANCE[dtype]:
                sys.exit(f"{form} {shape} {dtype}: the {name} is off by {off:.1e} of the largest")


def own_mib(field: str) -> float:
    """VmRSS or VmHWM (the peak) of this process."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))


def tell_memory(form: str, shape: str, dtype: str, mode: str) -> None:
    """MiB at the peak of one run beyond those before it, after a small run that loads what the first one loads."""
    prepared(form, "short", dtype, mode)()
    run = prepared(form, shape, dtype, mode)
    if form == "cpu":
        with open("/proc/self/clear_refs", "w") as peaks:
            peaks.write("5")  # the peak so far is forgotten
        before = own_mib("VmRSS")
        run()
        print(max(own_mib("VmHWM") - before, 0.0))
    else:
        # What a card would need: the simulator's memory is the host's, and the process holds more than that.
        torch.npu.synchronize()
        torch.npu.reset_peak_memory_stats()
        before = torch.npu.memory_allocated()
        run()
        print((torch.npu.max_memory_allocated() - before) / 2**20)


def peak_mib(form: str, shape: str, dtype: str, mode: str) -> float:
    command = [sys.executable, __file__, "--memory-of", form, shape, dtype, mode]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    _figures.add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each that count (default: %(default)s)")
    parser.add_argument(
        "--only", metavar="SHAPE", nargs="+", choices=SHAPES, default=list(SHAPES), help=", ".join(SHAPES)
    )
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES), help="(default: all)")
    parser.add_argument("--no-memory", action="store_true", help="leave out the comparison of peak memory")
    parser.add_argument("--memory-of", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    require_npu()
    if args.memory_of:
        tell_memory(*args.memory_of)
        return
    figures: list[Figure] = []
    targets = Targets()
    with Machine(args) as machine:
        print(describe_machine(), flush=True)
        for shape in args.only:
            for dtype in args.dtypes:
                check(shape, dtype)
                for mode in ("forward", "backward"):
                    best = best_of({form: prepared(form, shape, dtype, mode) for form in FORMS}, args.rounds)
                    for form in FORMS[1:]:
                        name = f"{form[4:]} {shape} {dtype}"
                        figures.append(Figure(name, mode, best["cpu"] * 1e3, best[form] * 1e3))
                        figures[-1].show()
                        if (shape, dtype) == ("8k", "fp16"):
                            targets.at_most(f"npu / cpu, {name}, {mode}", best[form] / best["cpu"], SLOWER)
    print(f"{len(figures)} cases; other processes used {machine.foreign:.2f} cores")
    if not args.no_memory:
        for shape in args.only:
            for dtype in args.dtypes:
                _, heads, _, positions, _, _ = SHAPES[shape]
                scores = SHAPES[shape][0] * heads * positions**2 * DTYPES[dtype].itemsize / 2**20
                for mode in ("forward", "backward"):
                    peaks = {form: peak_mib(form, shape, dtype, mode) for form in FORMS}
                    told = "  ".join(f"{form} {mib:7.1f}" for form, mib in peaks.items())
                    print(f"peak MiB {shape:8} {dtype} {mode:9} {told}  (all scores {scores:.1f})", flush=True)
                    if shape == "8k":
                        targets.at_most(
                            f"peak of npu fusion / all scores, {dtype}, {mode}", peaks[FORMS[2]] / scores, 0.5
                        )
    _figures.keep(figures, args)
    means = {form: geometric_mean([f.ratio for f in figures if f.name.startswith(form)]) for form in ("sdpa", "fusion")}
    print("cpu / npu, geometric mean: " + ", ".join(f"{form} {mean:.2f}" for form, mean in means.items()))
    targets.show()


if __name__ == "__main__":
    main()
