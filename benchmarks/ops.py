#!/usr/bin/env python3
"""Compares 60 operators on npu:0 with the CPU: small, medium and large, by dtype, contiguous and strided.

For each case two times: with synchronisation (a batch of calls, then the wait for the device) and, for small cases, the
host's share alone (the calls without the wait). Both sides take turns; the best of N counts. Prints the geometric means
against their targets, a table by operator, and the ten worst cases with what each consists of. Exit status 0 says that
the figures are valid, whether or not they meet the targets.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu
from _figures import geometric_mean
from torch.nn import functional as F

import torch

SIZES = {"small": 16, "medium": 256, "large": 1024}  # the side of a square matrix
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "int64": torch.int64}
LAYOUTS = ("contiguous", "strided", "sliced", "transposed", "expanded")
CALLS = {"small": 200, "medium": 20, "large": 8}
FLOATS = ("fp32", "fp16")
ALL = tuple(DTYPES)
FP32 = ("fp32",)


@dataclass
class Operator:
    """One operator: `run` takes the case's operands; `slow` ones take smaller ones."""

    run: Callable
    dtypes: tuple[str, ...] = FLOATS
    slow: bool = False


@dataclass
class Result:
    """One case; times are seconds of one call."""

    name: str
    size: str
    dtype: str
    layout: str
    npu: float
    cpu: float
    host: float

    @property
    def ratio(self) -> float:
        return self.npu / self.cpu

    @property
    def host_ratio(self) -> float:
        return self.host / self.cpu


@dataclass
class Operands:
    """x and y are n x n; positive is x made positive; index holds n rows of x; image is 4-D with as many elements."""

    x: torch.Tensor
    y: torch.Tensor
    positive: torch.Tensor
    row: torch.Tensor
    mask: torch.Tensor
    index: torch.Tensor
    image: torch.Tensor
    weight: torch.Tensor


def operators() -> dict[str, Operator]:
    """The operators by name."""
    one_argument = {
        "abs": ALL, "neg": ALL, "exp": FLOATS, "log": FLOATS, "sqrt": FLOATS, "rsqrt": FLOATS, "sin": FLOATS,
        "tanh": FLOATS, "sigmoid": FLOATS, "relu": ALL, "erf": FLOATS, "reciprocal": FLOATS,
    }  # fmt: skip
    made = {
        name: Operator(lambda o, name=name: getattr(torch, name)(o.positive), dtypes)
        for name, dtypes in one_argument.items()
    }
    made |= {
        "add": Operator(lambda o: o.x + o.y, ALL),
        "sub": Operator(lambda o: o.x - o.y, ALL),
        "mul": Operator(lambda o: o.x * o.y, ALL),
        "div": Operator(lambda o: o.x / o.positive),
        "add_scalar": Operator(lambda o: o.x + 2, ALL),
        "add_row": Operator(lambda o: o.x + o.row, ALL),
        "addcmul": Operator(lambda o: torch.addcmul(o.x, o.y, o.positive)),
        "pow": Operator(lambda o: o.positive.pow(2.5)),
        "maximum": Operator(lambda o: torch.maximum(o.x, o.y), ALL),
        "clamp": Operator(lambda o: o.x.clamp(-1, 1), ALL),
        "add_": Operator(lambda o: o.x.add_(o.y), ALL),
        "eq": Operator(lambda o: o.x == o.y, ALL),
        "lt": Operator(lambda o: o.x < o.y, ALL),
        "where": Operator(lambda o: torch.where(o.mask, o.x, o.y), ALL),
        "masked_fill": Operator(lambda o: o.x.masked_fill(o.mask, 1), ALL),
        "gelu": Operator(lambda o: F.gelu(o.x)),
        "silu": Operator(lambda o: F.silu(o.x)),
        "leaky_relu": Operator(lambda o: F.leaky_relu(o.x, 0.1)),
        "sum": Operator(lambda o: o.x.sum(), ALL),
        "sum_rows": Operator(lambda o: o.x.sum(1), ALL),
        "sum_columns": Operator(lambda o: o.x.sum(0), ALL),
        "mean": Operator(lambda o: o.x.mean(1)),
        "max": Operator(lambda o: o.x.max(1), ALL),
        "argmax": Operator(lambda o: o.x.argmax(1), ALL),
        "var": Operator(lambda o: o.x.var(1)),
        "cumsum": Operator(lambda o: o.x.cumsum(1), ALL),
        "softmax": Operator(lambda o: o.x.softmax(1)),
        "log_softmax": Operator(lambda o: o.x.log_softmax(1)),
        "layer_norm": Operator(lambda o: F.layer_norm(o.x, o.x.shape[-1:])),
        "mm": Operator(lambda o: o.x @ o.y, FP32, slow=True),
        "linear": Operator(lambda o: F.linear(o.x, o.y, o.row), FP32, slow=True),
        "bmm": Operator(lambda o: torch.bmm(o.image[0], o.image[0].mT), FP32, slow=True),
        "conv2d": Operator(lambda o: F.conv2d(o.image, o.weight, padding=1), FP32, slow=True),
        "max_pool2d": Operator(lambda o: F.max_pool2d(o.image, 2), FP32),
        "avg_pool2d": Operator(lambda o: F.avg_pool2d(o.image, 2), FP32),
        "batch_norm": Operator(lambda o: F.batch_norm(o.image, None, None, training=True), FP32),
        "cat": Operator(lambda o: torch.cat([o.x, o.y]), ALL),
        "stack": Operator(lambda o: torch.stack([o.x, o.y]), ALL),
        "contiguous_t": Operator(lambda o: o.x.t().contiguous(), ALL),
        "clone": Operator(lambda o: o.x.clone(), ALL),
        "to_float": Operator(lambda o: o.x.to(torch.float64), ALL),
        "zeros_like": Operator(lambda o: torch.zeros_like(o.x), ALL),
        "arange": Operator(lambda o: torch.arange(o.x.numel(), device=o.x.device), FP32),
        "index_select": Operator(lambda o: o.x.index_select(0, o.index), ALL),
        "gather": Operator(lambda o: o.x.gather(1, o.index.expand(o.x.shape[0], -1)), ALL),
        "embedding": Operator(lambda o: F.embedding(o.index, o.x), FLOATS),
        "sort": Operator(lambda o: o.x.sort(1), ("fp32", "int64"), slow=True),
        "topk": Operator(lambda o: o.x.topk(8, 1), ("fp32", "int64"), slow=True),
    }  # fmt: skip
    return made


def operands(size: str, dtype: str, layout: str, device: str, slow: bool) -> Operands:
    """The same values on every device. Strided: every second column, and a permuted image; sliced: the left half of
    each row; transposed: matrices; expanded: the second operand is a row. Images are channels_last where transposed."""
    generator = torch.Generator().manual_seed(0)
    n = SIZES[size] // (2 if slow and size != "small" else 1)

    def matrix() -> torch.Tensor:
        values = torch.randint(-9, 10, (n, 2 * n), generator=generator)
        if dtype != "int64":
            values = values + torch.rand(n, 2 * n, generator=generator)
        values = values.to(DTYPES[dtype]).to(device)
        if layout == "transposed":
            return values[:, :n].contiguous().t()
        return (
            values[:, ::2]
            if layout == "strided"
            else values[:, :n]
            if layout == "sliced"
            else values[:, :n].contiguous()
        )

    x, y = matrix(), matrix()
    if layout == "expanded":
        y = y[:1].expand(n, n)
    positive = x.abs() + 1
    if layout == "strided":
        positive = torch.stack([positive, positive], -1).flatten(1)[:, ::2]
    channels, side = 16, max(n // 8, 2)
    batch = max(n * n // (channels * side * side), 1)
    image = torch.rand(batch, channels, side, side, generator=generator).to(device)
    if layout == "strided":
        image = image.transpose(2, 3)
    weight = torch.rand(channels, channels, 3, 3, generator=generator).to(device)
    if layout == "transposed":
        image, weight = (t.contiguous(memory_format=torch.channels_last) for t in (image, weight))
    index = torch.randint(0, n, (n,), generator=generator).to(device)
    return Operands(x, y, positive, y[0].clone(), x > 0, index, image, weight)


def measure(name: str, operator: Operator, size: str, dtype: str, layout: str, rounds: int) -> Result:
    calls = CALLS[size]
    sides = {device: operands(size, dtype, layout, device, operator.slow) for device in ("cpu", "npu:0")}
    run, on_npu, on_cpu = operator.run, sides["npu:0"], sides["cpu"]

    def npu() -> None:
        for _ in range(calls):
            run(on_npu)
        torch.npu.synchronize()

    def host() -> None:
        for _ in range(calls):
            run(on_npu)

    def cpu() -> None:
        for _ in range(calls):
            run(on_cpu)

    candidates = {"cpu": cpu, "npu": npu} | ({"host": host} if size == "small" else {})
    best = best_of(candidates, rounds, warm_up=2, settle=torch.npu.synchronize)
    return Result(
        name, size, dtype, layout, best["npu"] / calls, best["cpu"] / calls, best.get("host", math.nan) / calls
    )


def reason(result: Result) -> str:
    """What a slow case consists of, as the device counts it."""
    operator = operators()[result.name]
    case = operands(result.size, result.dtype, result.layout, "npu:0", operator.slow)
    operator.run(case)
    torch.npu.synchronize()
    before = torch._C._npu_simulatorCounters(0)
    if before is None:
        return "a card: see its profile"
    fallbacks = sum(torch.npu.fallback_stats().values())
    operator.run(case)
    torch.npu.synchronize()
    after = torch._C._npu_simulatorCounters(0)
    ops = after["ops_launched"] - before["ops_launched"]
    parts = [f"{ops} IR operator{'s' if ops != 1 else ''}"]
    if sum(torch.npu.fallback_stats().values()) > fallbacks:
        parts.append("runs on the CPU through copies")
    if relayouts := after["relayouts"] - before["relayouts"]:
        parts.append(f"{relayouts} operands relaid out")
    if result.size == "small":
        parts.append(f"host {result.host * 1e6:.1f} of {result.npu * 1e6:.1f} us, CPU {result.cpu * 1e6:.1f} us")
    elif result.cpu < 60e-6:
        parts.append(f"{(result.npu - result.cpu) * 1e6:.0f} us more than the CPU's {result.cpu * 1e6:.0f} us")
    elif ops > 1 and result.layout != "contiguous":
        parts.append("copies strided operands first, which the CPU reads in place")
    return ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side that count (default: %(default)s)")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="measure these operators only")
    parser.add_argument(
        "--sizes", metavar="SIZE", nargs="+", choices=SIZES, default=list(SIZES), help="of: " + ", ".join(SIZES)
    )
    parser.add_argument(
        "--layouts", metavar="LAYOUT", nargs="+", choices=LAYOUTS, default=LAYOUTS[:2], help="of: " + ", ".join(LAYOUTS)
    )
    parser.add_argument("--json", metavar="FILE", help="write all times there")
    args = parser.parse_args()
    require_npu()
    chosen = {name: op for name, op in operators().items() if not args.only or name in args.only}
    if unknown := set(args.only or ()) - set(chosen):
        parser.error(f"no such operator: {', '.join(sorted(unknown))}; there are {', '.join(operators())}")
    results: list[Result] = []
    with Machine(args) as machine, torch.no_grad():
        print(describe_machine(), flush=True)
        for name, operator in chosen.items():
            for size in args.sizes:
                for dtype in operator.dtypes:
                    for layout in args.layouts:
                        results.append(measure(name, operator, size, dtype, layout, args.rounds))
    print(f"{len(chosen)} operators, {len(results)} cases; other processes used {machine.foreign:.2f} cores")
    if args.json:
        with open(args.json, "w") as file:
            json.dump([asdict(r) for r in results], file, indent=1)

    targets = Targets()
    for size in args.sizes:
        mean = geometric_mean([r.ratio for r in results if r.size == size])
        if size == "small":
            print(f"npu / cpu, small, with synchronisation: {mean:.3f}")
            host = geometric_mean([r.host_ratio for r in results if r.size == size])
            targets.at_most("host time of npu / cpu, small, geometric mean", host, 1.0)
        else:
            targets.at_most(f"npu / cpu, {size}, geometric mean", mean, 1.05)
    print("npu / cpu by operator, geometric mean over dtypes and layouts:")
    for name in chosen:
        means = [geometric_mean([r.ratio for r in results if r.name == name and r.size == size]) for size in args.sizes]
        print(f"  {name:14s}" + "".join(f" {size} {mean:6.2f}" for size, mean in zip(args.sizes, means, strict=True)))
    print("the ten worst, with synchronisation:")
    for r in sorted((r for r in results if r.size != "small" or args.sizes == ["small"]), key=lambda r: -r.ratio)[:10]:
        print(f"  {r.ratio:6.2f}  {r.name} {r.size} {r.dtype} {r.layout}: {reason(r)}")
    small = sorted((r for r in results if r.size == "small"), key=lambda r: -r.host_ratio)[:10]
    if small:
        print("the ten worst of the small ones, host time:")
    for r in small:
        print(f"  {r.host_ratio:6.2f}  {r.name} {r.dtype} {r.layout}: {reason(r)}")
    targets.show()


if __name__ == "__main__":
    main()
