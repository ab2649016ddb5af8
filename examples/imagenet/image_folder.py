"""Data sets and loaders of the ImageNet example: DATA/train and DATA/val with one folder of images per class."""

import argparse
from pathlib import Path

from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

import torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _transforms(args: argparse.Namespace, train: bool) -> transforms.Compose:
    size = args.image_size
    if args.augment == "imagenet" and train:
        steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
    elif args.augment == "imagenet":
        steps = [transforms.Resize(size * 256 // 224), transforms.CenterCrop(size)]
    else:
        steps = [transforms.Resize((size, size))]
        if args.augment == "shift" and train:
            steps.append(transforms.RandomCrop(size, padding=size // 16))
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])


def open_folder(args: argparse.Namespace, split: str) -> datasets.ImageFolder:
    """The ImageFolder DATA/`split`. Raises SystemExit, saying what was expected, where there is none."""
    folder = Path(args.data, split)
    try:
        return datasets.ImageFolder(str(folder), _transforms(args, split == "train"))
    except FileNotFoundError as error:
        raise SystemExit(f"main.py: {folder}: expected one folder of images per class there: {error}") from error


def train_loader(dataset: datasets.ImageFolder, args: argparse.Namespace) -> DataLoader:
    """Shuffled batches of one shape: the rest that does not fill a batch is dropped (a device compiles per shape)."""
    sampler = DistributedSampler(dataset) if args.distributed else None
    generator = torch.Generator()
    generator.seed()
    return DataLoader(
        dataset,
        args.batch_size,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=args.workers,
        pin_memory=False,
        drop_last=True,
        generator=generator,
        persistent_workers=args.workers > 0,
    )


def val_loader(dataset: datasets.ImageFolder, args: argparse.Namespace) -> DataLoader:
    """Every held-out image once and in order, so that two runs are measured on the same ones."""
    return DataLoader(dataset, args.batch_size, shuffle=False, num_workers=args.workers, pin_memory=False)
