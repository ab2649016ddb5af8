#!/usr/bin/env python3
"""One optimizer step with unscaling and overflow check over the parameters of ResNet-50 and BERT-base: fused on npu
(apex with combine_grad) against upstream's foreach and fused forms on the CPU.

All take turns in this process; the best of N counts. The gradients are there already; a step unscales them (by 2 and by
1/2 in turn, so that they stay), looks whether one is infinite, and updates the parameters. Besides the time it prints
what share of this machine's memory bandwidth a step reaches: the bytes that it must move at least, over the time, over
the rate of a loop that does nothing else. Exit status 0 says that the figures are valid, whether or not they meet the
targets.
"""

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu

import torch

FOREACH_TARGETS = {"sgd": 1.5, "adam": 2.0, "adamw": 2.0, "lamb": 2.0}
FUSED_TARGET = 1.1


def resnet50_shapes() -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    width = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = 64 * 2**stage
        for block in range(blocks):
            for shape in ((inner, width, 1, 1), (inner, inner, 3, 3), (4 * inner, inner, 1, 1)):
                shapes += [shape, shape[:1], shape[:1]]
            if block == 0:
                shapes += [(4 * inner, width, 1, 1), (4 * inner,), (4 * inner,)]
            width = 4 * inner
    return [*shapes, (1000, 2048), (1000,)]


def bert_base_shapes() -> list[tuple[int, ...]]:
    size, inner = 768, 3072
    layer = [shape for _ in range(4) for shape in ((size, size), (size,))] + [(size,), (size,)]
    layer += [(inner, size), (inner,), (size, inner), (size,), (size,), (size,)]
    return [(30522, size), (512, size), (2, size), (size,), (size,), *(12 * layer), (size, size), (size,)]


NETWORKS = {"resnet50": resnet50_shapes, "bert-base": bert_base_shapes}


class ForeachLamb(torch.optim.Optimizer):
    """LAMB as one would write it with upstream's foreach operators."""

    def __init__(self, params, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            for p in params:
                if not self.state[p]:
                    self.state[p] = {"m": torch.zeros_like(p), "v": torch.zeros_like(p)}
            means, squares = ([self.state[p][name] for p in params] for name in "mv")
            torch._foreach_lerp_(means, grads, 0.1)
            torch._foreach_mul_(squares, 0.999)
            torch._foreach_addcmul_(squares, grads, grads, value=0.001)
            updates = torch._foreach_sqrt(squares)
            torch._foreach_add_(updates, 1e-6)
            updates = torch._foreach_div(means, updates)
            weights, sizes = torch._foreach_norm(params), torch._foreach_norm(updates)
            torch._foreach_clamp_max_(weights, 10.0)
            torch._foreach_div_(weights, sizes)
            torch._foreach_mul_(updates, weights)
            torch._foreach_add_(params, updates, alpha=-group["lr"])


@dataclass
class Method:
    """`passes`: how often a step reads or writes a whole set of parameters at least, the unscaling included."""

    plain: Callable
    fused: Callable
    passes: int
    has_fused: bool = True


def methods() -> dict[str, Method]:
    from torch.npu import optim

    return {
        "sgd": Method(
            lambda p, **kw: torch.optim.SGD(p, 1e-6, momentum=0.9, **kw),
            lambda p: optim.NpuFusedSGD(p, 1e-6, momentum=0.9),
            7,
        ),
        "adam": Method(lambda p, **kw: torch.optim.Adam(p, 1e-6, **kw), lambda p: optim.NpuFusedAdam(p, 1e-6), 9),
        "adamw": Method(lambda p, **kw: torch.optim.AdamW(p, 1e-6, **kw), lambda p: optim.NpuFusedAdamW(p, 1e-6), 9),
        "lamb": Method(lambda p: ForeachLamb(p, 1e-6), lambda p: optim.NpuFusedLamb(p, 1e-6), 9, has_fused=False),
    }


def with_gradients(shapes, device: str) -> list[torch.nn.Parameter]:
    params = [torch.nn.Parameter(torch.full(shape, 0.01, device=device)) for shape in shapes]
    for p in params:
        p.grad = torch.full_like(p, 1e-3)
    return params


def inverses(device: str) -> Iterator[torch.Tensor]:
    """What the gradients of one step after another are multiplied by."""
    return itertools.cycle([torch.full((1,), 2.0, device=device), torch.full((1,), 0.5, device=device)])


def cpu_step(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
    factors = inverses("cpu")

    def step() -> None:
        found = torch.zeros(1)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, next(factors))
        if not found.item():
            optimizer.step()

    return step


def npu_step(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """The end of `amp.scale_loss` and `optimizer.step()`."""
    stash = optimizer._amp_stash
    factors = inverses("npu")

    def step() -> None:
        with torch.no_grad():
            found = torch.zeros(1, device="npu")
            stash.finish_backward(found, next(factors))
            overflow = bool(found.item())
        if not overflow:
            optimizer.step()
        torch.npu.synchronize()

    return step


def memory_rate(elements: int) -> float:
    """Bytes moved a second, read plus written, by what only moves memory: the better of a scaling and a sum in place.

    A copy is slower than they are: it also reads what it overwrites. `elements` are as many as the step has, so that a
    cache which holds a part of them counts for both.
    """
    x, y = torch.ones(2 * elements), torch.ones(2 * elements)
    best = best_of({"mul": lambda: x.mul_(1.0), "add": lambda: x.add_(y, alpha=0.0)}, 5)
    return max(2 * x.nbytes / best["mul"], 3 * x.nbytes / best["add"])


def measure(network: str, name: str, method: Method, rounds: int) -> dict[str, float]:
    from apex import amp

    shapes = NETWORKS[network]()
    foreach = {"foreach": True} if method.has_fused else {}
    candidates = {"foreach": cpu_step(method.plain(with_gradients(shapes, "cpu"), **foreach))}
    if method.has_fused:
        candidates["fused"] = cpu_step(method.plain(with_gradients(shapes, "cpu"), fused=True))
    params = with_gradients(shapes, "npu")
    optimizer = method.fused(params)
    module = torch.nn.ParameterList(params)
    amp.initialize(module, optimizer, opt_level="O1", combine_grad=True, verbosity=0)
    candidates["npu"] = npu_step(optimizer)
    best = best_of(candidates, rounds)
    amp.initialize([], enabled=False)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--network", choices=[*NETWORKS, "all"], default="all", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=10, help="steps that count (default: %(default)s)")
    args = parser.parse_args()
    require_npu()
    targets = Targets()
    with Machine(args) as machine:
        print(describe_machine(), flush=True)
        for network in NETWORKS if args.network == "all" else [args.network]:
            elements = sum(math.prod(shape) for shape in NETWORKS[network]())
            rate = memory_rate(elements)
            print(f"{network}: {elements / 1e6:.1f} M parameters; memory moves {rate / 1e9:.1f} GB/s", flush=True)
            for name, method in methods().items():
                best = measure(network, name, method, args.rounds)
                share = method.passes * 4 * elements / best["npu"] / rate
                times = ", ".join(f"{kind} {seconds * 1e3:.1f} ms" for kind, seconds in best.items())
                print(f"{network} {name}: {times}; {share:.2f} of the memory's rate", flush=True)
                targets.at_least(
                    f"{network} {name}: foreach / npu", best["foreach"] / best["npu"], FOREACH_TARGETS[name]
                )
                if "fused" in best:
                    targets.at_least(f"{network} {name}: fused / npu", best["fused"] / best["npu"], FUSED_TARGET)
    print(f"other processes used {machine.foreign:.2f} cores")
    targets.show()


if __name__ == "__main__":
    main()
