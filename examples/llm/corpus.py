"""The text that these examples learn: what the interpreter itself ships, as bytes; nothing is downloaded."""

import importlib
import inspect
from collections.abc import Iterator

import torch
from torch import Tensor

# Modules whose sources are there wherever Python is: another kind of text, for fine-tuning.
MODULES = ("argparse", "ast", "calendar", "collections", "csv", "dataclasses", "difflib", "inspect", "logging", "shlex")
HELD_OUT = 10  # every so many pieces one is kept for measuring


def _documentation() -> list[str]:
    from pydoc_data.topics import topics

    return [topics[name] for name in sorted(topics)]


def _sources() -> list[str]:
    lines = [line for name in MODULES for line in inspect.getsource(importlib.import_module(name)).splitlines(True)]
    return ["".join(lines[at : at + 200]) for at in range(0, len(lines), 200)]


def load(kind: str = "documentation") -> tuple[Tensor, Tensor]:
    """Bytes to learn and held-out bytes, uint8 of one dimension each.

    Args:
        kind: ``documentation`` (the language reference that ``help()`` shows, 0.5 MB) or ``sources`` (modules of the
            standard library).
    """
    pieces = {"documentation": _documentation, "sources": _sources}[kind]()
    kept = [piece for at, piece in enumerate(pieces) if at % HELD_OUT == HELD_OUT - 1]
    learned = [piece for at, piece in enumerate(pieces) if at % HELD_OUT != HELD_OUT - 1]
    return tuple(torch.frombuffer(bytearray("\n".join(part).encode()), dtype=torch.uint8) for part in (learned, kept))


def batches(text: Tensor, batch: int, length: int, steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(bytes, the bytes that follow them) of random places, int64 of shape (batch, length), alike on every device."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(text) - length, (batch, 1), generator=generator)
        window = text[starts + torch.arange(length + 1)].long()
        yield window[:, :-1], window[:, 1:]
