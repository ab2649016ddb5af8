"""What a recorded training step costs: ResNet-50, forward and backward, against writing the same bytes with h5py alone.

    python benchmarks/dumper.py [--device npu] [--arch resnet50] [--batch 8] [--size 64]

Targets: the recorded step takes at most 3 x as long as h5py needs for the same data sets (same names, values, nothing
else); the recorded step needs at most the largest tensor (and 64 MB) more memory than the plain one.
"""

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path

import _common
import numpy as np

SLACK = 64 << 20


def step_of(arch: str, device: str, batch: int, size: int):
    """A function that runs forward and backward once."""
    import torchvision

    import torch

    torch.manual_seed(0)
    model = torchvision.models.get_model(arch, weights=None).to(device)
    images = torch.randn(batch, 3, size, size).to(device)
    labels = torch.randint(0, 1000, (batch,)).to(device)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        if device.startswith("npu"):
            torch.npu.synchronize()

    return step


def recorded(step, path: Path):
    """The step inside a dumper."""
    import torch

    def run() -> None:
        path.unlink(missing_ok=True)
        with torch.utils.dumper(use_dump=True, dump_path=path, progress=False):
            step()

    return run


def data_sets(path: Path) -> dict:
    """All data sets of a dump file with their values."""
    import h5py

    found = {}

    def see(name, item):
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            found[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(see)
    return found


def h5py_alone(values: dict, path: Path):
    """Writes the same data sets."""
    import h5py

    def run() -> None:
        path.unlink(missing_ok=True)
        with h5py.File(path, "w") as file:
            for name, value in values.items():
                file.create_dataset(name, data=value)

    return run


def peak_memory(arch: str, device: str, batch: int, size: int, path, connection) -> None:
    """Sends the largest resident size in bytes that one warm step, recorded if there is a path, reaches."""
    step = step_of(arch, device, batch, size)
    step()
    if path is not None:
        recorded(step, Path(path))()
    else:
        step()
    connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def measured_memory(args, path) -> int:
    """peak_memory in a process of its own."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    what = (args.arch, args.device, args.batch, args.size, path, theirs)
    process = context.Process(target=peak_memory, args=what)
    process.start()
    theirs.close()
    try:
        return mine.recv()
    finally:
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _common.add_arguments(parser)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--arch", default="resnet50", help="network of torchvision (%(default)s, the targets' case)")
    parser.add_argument("--no-memory", action="store_true", help="leave the measurement of memory out")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=64, metavar="PIXELS")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where the files go (default: a temporary folder)")
    args = parser.parse_args()
    if args.device.startswith("npu"):
        _common.require_npu()
    print(_common.describe_machine())
    targets = _common.Targets()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        dump, plain = Path(folder, "dump.h5"), Path(folder, "h5py.h5")
        step = step_of(args.arch, args.device, args.batch, args.size)
        record = recorded(step, dump)
        record()
        values = data_sets(dump)
        sizes = [np.asarray(value).nbytes for value in values.values()]
        largest = max(sizes)
        print(
            f"{args.arch} on {args.device}, batch {args.batch}, {args.size} px: {len(values)} data sets, "
            f"{sum(sizes) / 1e6:.0f} MB, the largest {largest / 1e6:.1f} MB"
        )
        with _common.Machine(args):
            # Files of the round before are on their way to the disk; each candidate starts with none pending.
            best = _common.best_of(
                {"plain step": step, "recorded step": record, "h5py alone": h5py_alone(values, plain)},
                args.rounds,
                settle=lambda: (os.sync(), time.sleep(0.2)),
            )
        for name, seconds in best.items():
            print(f"{name:>14}: {seconds * 1e3:8.1f} ms")
        targets.at_most("recorded step / h5py alone", best["recorded step"] / best["h5py alone"], 3.0)
        del values
        if not args.no_memory:
            grown = measured_memory(args, dump) - measured_memory(args, None)
            print(f"memory: {grown / 1e6:.1f} MB above the plain step's peak")
            targets.at_most("memory above the plain step, MB", grown / 1e6, (largest + SLACK) / 1e6)
    targets.show()


if __name__ == "__main__":
    main()
