"""Saving and loading of training state for the ImageNet example.

Note [A checkpoint is whole or absent]
It is written to a temporary file beside its final place, flushed to the disk, and renamed over the old one: an
interruption at any moment leaves either the old checkpoint or the new one.
"""

import os
import shutil
from pathlib import Path

import torch

CHECKPOINT = "checkpoint.pth.tar"
BEST = "model_best.pth.tar"


def _replace(temporary: Path, path: Path) -> None:
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save_checkpoint(state: dict, is_best: bool, directory: Path) -> None:
    """Writes `state` to directory/checkpoint.pth.tar and, for the best one so far, to model_best.pth.tar too."""
    path = directory / CHECKPOINT
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        _replace(temporary, path)
        if is_best:
            # A second name of the same file: the next save replaces the first name and leaves this one alone.
            try:
                os.link(path, temporary)
            except OSError:
                shutil.copyfile(path, temporary)
            _replace(temporary, directory / BEST)
    finally:
        temporary.unlink(missing_ok=True)


def plain_names(state_dict: dict) -> dict:
    """The state dict without the `module.` that DistributedDataParallel puts before every name."""
    return {name.removeprefix("module."): value for name, value in state_dict.items()}


def read_weights(path: str) -> dict:
    """The weights in `path`, a state dict or a checkpoint of this script. Raises SystemExit where there is no file."""
    if not os.path.isfile(path):
        raise SystemExit(f"main.py: --pretrained: no file '{path}'")
    loaded = torch.load(path, map_location="cpu")
    return plain_names(loaded.get("state_dict", loaded))


def load_weights(model: torch.nn.Module, weights: dict) -> list[str]:
    """Loads `weights` into `model`; returns the names left as they were because the shape differs (another classifier).

    Raises SystemExit where the weights belong to another architecture.
    """
    own = model.state_dict()
    other = [name for name, value in weights.items() if name in own and own[name].shape != value.shape]
    fitting = {name: value for name, value in weights.items() if name not in other}
    missing, unexpected = model.load_state_dict(fitting, strict=False)
    missing = sorted(set(missing) - set(other))
    # A classifier is one weight and one bias.
    if missing or unexpected or len(other) > 2:
        names = ", ".join([*missing, *unexpected, *other][:5])
        raise SystemExit(f"main.py: --pretrained: these weights are of another architecture ({names}, ...)")
    return other
