# Synthetic data sets that are learnable in a few steps: seeded random inputs, targets computed from them.
# ruff: isort: skip_file
"""Small data sets for the scripts of this folder; everything is made on the CPU."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def loader(*tensors, batch_size):
    """Batches of the given tensors in a fixed order."""
    return DataLoader(TensorDataset(*tensors), batch_size=batch_size, shuffle=False)


def images(count, size, classes, channels=3, seed=0):
    """Images [count, channels, size, size] (float32) with a bright stripe per class; labels [count] (int64)."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, channels, size, size, generator=g) * 0.5
    y = torch.randint(0, classes, (count,), generator=g)
    step = max(1, size // classes)
    for i, label in enumerate(y.tolist()):
        x[i, label % channels, label * step : (label + 1) * step] += 2.0
    return x, y


def masks(count, size, classes=2, depth=None, seed=0):
    """Images with a bright box each, and the box as a mask of class indices; volumes if ``depth`` is given."""
    g = torch.Generator().manual_seed(seed)
    shape = (size, size) if depth is None else (depth, size, size)
    x = torch.randn(count, 1, *shape, generator=g) * 0.3
    y = torch.zeros(count, *shape, dtype=torch.long)
    for i in range(count):
        top, left = torch.randint(0, size // 2, (2,), generator=g).tolist()
        label = 1 + i % (classes - 1)
        y[i, ..., top : top + size // 2, left : left + size // 2] = label
    x += y.unsqueeze(1).float()
    return x, y


def sequences(count, length, features, classes, seed=0):
    """Sequences [count, length, features]; the label is the feature with the largest sum."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, length, features, generator=g)
    return x, x.sum(1)[:, :classes].argmax(1)


def step_parser(description):
    """The options that all scripts of this folder share."""
    import argparse

    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=10, help="training steps")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    return parser
