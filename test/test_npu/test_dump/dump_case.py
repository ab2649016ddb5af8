"""What the tests of the operator dump share: a folder per test, networks, runs of scripts, reading a dump."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import h5py

import torch

ROOT = Path(__file__).resolve().parents[3]
_SOURCE = ROOT / "tools" / "msaccucmp"
_INSTALLED = Path(torch.__file__).parent / "tools" / "operator_cmp" / "compare"
MSACCUCMP = (_SOURCE if _SOURCE.is_dir() else _INSTALLED) / "msaccucmp.py"
GOLDEN = Path(__file__).with_name("golden_v1.h5")
HAS_DUMPER = isinstance(torch.utils.dumper, type)


@unittest.skipUnless(HAS_DUMPER, "needs a build with USE_DUMP=1 (bash build.sh has it on unless USE_DUMP=0 is given)")
class DumpCase(unittest.TestCase):
    """A TestCase with an empty folder `self.folder`."""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def dump(self, work, name="dump.h5", **options):
        """Runs work() recorded; returns (dumper, path)."""
        path = self.folder / name
        with torch.utils.dumper(use_dump=True, dump_path=path, progress=False, **options) as dump:
            work()
        return dump, path

    def script(self, text, *arguments, **environment):
        """Runs a script in the test's folder."""
        file = self.folder / "script.py"
        file.write_text(textwrap.dedent(text))
        return self.run_python(file, *arguments, **environment)

    def run_python(self, *command, **environment):
        return subprocess.run(
            [sys.executable, *map(str, command)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=120,
            env={**os.environ, **environment},
        )


def calls(path):
    """Paths /op/seqid of a dump in the order of the run."""
    with h5py.File(path, "r") as file:
        found = [(c.attrs["Index"], f"/{op}/{s}") for op, group in file.items() for s, c in group.items()]
    return [call for _, call in sorted(found)]


def data(path, place):
    """Values of a data set."""
    with h5py.File(path, "r") as file:
        return file[place][()]


def attributes(path, place):
    """Attributes of a group or data set."""
    with h5py.File(path, "r") as file:
        return dict(file[place].attrs)


class ConvNet(torch.nn.Module):
    """Convolutions, batch normalisation, pooling, a residual sum, a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(4)
        self.conv2 = torch.nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.pool = torch.nn.MaxPool2d(2)
        self.fc = torch.nn.Linear(64, 5)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv1(x)))
        x = self.pool(x + self.conv2(x))
        return self.fc(x.flatten(1))


def seeded(make, device="cpu", seed=0):
    """A module with the same weights on every device."""
    torch.manual_seed(seed)
    return make().to(device)


def train(model, *inputs):
    """Forward and backward."""
    result = model(*inputs)
    result = result[0] if isinstance(result, tuple) else result
    result.pow(2).mean().backward()
