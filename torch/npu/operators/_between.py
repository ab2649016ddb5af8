r"""What products with a collective have in common: their checks, packed factors, and rows by rank and expert."""

import torch
from torch import Tensor

from ._checks import check


def check_matrices(
    name: str, x1: Tensor, x2: Tensor, *, dims: tuple[int, ...] = (2,), depth: int | None = None
) -> None:
    check(
        x1.dim() in dims and x2.dim() == 2 and (depth or x1.shape[-1]) == x2.shape[0],
        name,
        f"the matrices do not fit: {tuple(x1.shape)} and {tuple(x2.shape)}",
    )


def check_defaults(name: str, **arguments: tuple) -> None:
    r"""Raises NotImplementedError for the first argument, (what is given, what is supported...), that differs."""
    for argument, (value, *supported) in arguments.items():
        if value not in supported:
            raise NotImplementedError(f"{name}: {argument} must be {supported[-1]!r}, not {value!r}")


def check_mode(name: str, comm_mode: str | None) -> None:
    check(comm_mode in (None, "ai_cpu", "aiv"), name, f"comm_mode must be 'ai_cpu' or 'aiv', but is {comm_mode!r}")


def packed_factor(scale: Tensor, wide: torch.dtype) -> Tensor:
    r"""A floating factor, or one that npu_trans_quant_param has packed."""
    if scale.dtype is not torch.int64:
        return scale.to(wide)
    low = scale & 0xFFFFFFFF
    return torch.where(low > 0x7FFFFFFF, low - (1 << 32), low).to(torch.int32).view(torch.float32).to(wide)


def rows_by_rank(name: str, argument: str, counts: list[int], ranks: int, experts: int, rows: int | None) -> list[int]:
    r"""Rows to or from each rank, of the counts by rank and expert."""
    check(
        len(counts) == ranks * experts and (rows is None or sum(counts) == rows),
        name,
        f"{argument} must be {ranks} * {experts} counts of {rows} rows, but is {list(counts)}",
    )
    return [sum(counts[r * experts : (r + 1) * experts]) for r in range(ranks)]


def by_expert(counts: list[int], ranks: int, experts: int, device: torch.device) -> tuple[Tensor, Tensor]:
    r"""Rows by rank and expert: their order by expert, and where the rows of each expert end."""
    order: list[int] = []
    ends: list[int] = []
    starts = [sum(counts[:i]) for i in range(len(counts))]
    for expert in range(experts):
        for at in range(expert, ranks * experts, experts):
            order += range(starts[at], starts[at] + counts[at])
        ends.append(len(order))
    made = torch.tensor([*order, *ends], dtype=torch.int64).to(device)
    return made[: len(order)], made[len(order) :]
