"""Finds a faulty operator, as docs/precision.md walks through it, on a network in which the simulator plants the fault.

    python examples/precision/find_faulty_operator.py [--fault Relu:scale=1.02@2] [--folder DIR]

1. one training step is recorded on the CPU;
2. the same step on npu takes each operator's inputs from that file and records what comes out;
3. msaccucmp.py compares the outputs: the faulty operator stands out, and no other does;
4. bisect does 1 to 3 in one go, names module and source line and writes a test of the operator;
5. the operator alone is run again under ACL dump: the device's view of it, as .npy files;
6. an overflow in the middle of a backward pass is caught and named.

Exit status 0 means that exactly the planted operator was found. On a card, leave --fault empty.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).resolve()
COMPARER = Path(torch.__file__).parent / "tools" / "operator_cmp" / "compare" / "msaccucmp.py"
FAULT = "Relu:scale=1.02@2"


class Net(nn.Module):
    """Two convolutions, an LSTM over the rows of the image, attention, a classifier."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.lstm = nn.LSTM(64, 16, batch_first=True)
        self.query = nn.Linear(16, 48)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv1(x)))
        x = torch.relu(self.conv2(x))
        x, _ = self.lstm(x.permute(0, 2, 1, 3).flatten(2))
        q, k, v = (t.unsqueeze(1) for t in self.query(x).chunk(3, -1))
        x = x + nn.functional.scaled_dot_product_attention(q, k, v).squeeze(1)
        return self.head(x.mean(1))


def step(device):
    """Forward and backward of one step; the parameter update is left out, as the guide advises."""
    torch.manual_seed(0)
    model = Net().to(device)
    images, labels = torch.randn(4, 3, 8, 8).to(device), torch.tensor([1, 3, 5, 7]).to(device)
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    return loss


def overflowing_step():
    """A half precision step whose backward leaves the range of float16 in the middle."""
    torch.manual_seed(0)
    first, second = nn.Linear(8, 8).half().npu(), nn.Linear(8, 8).half().npu()
    hidden = torch.tanh(first(torch.ones(4, 8, dtype=torch.float16).npu()))
    hidden.register_hook(lambda gradient: gradient * 60000.0 * 60000.0)
    second(hidden).sum().backward()


def worker(stage):
    """One stage in a process of its own, as the two machines of the guide are."""
    if stage == "cpu":
        with torch.utils.dumper(use_dump=True, dump_path="./model_cpu.h5"):
            step("cpu")
    elif stage == "npu":
        with torch.utils.dumper(use_dump=True, load_file_path="./model_cpu.h5", dump_path="./model_npu.h5"):
            step("npu:0")
    elif stage == "acl":
        with torch.utils.dumper(
            use_load=True, dump_path="./", load_file_path="./output.h5", load_with_acl_dump=True, progress=False
        ):
            step("npu:0")
    else:
        with torch.utils.dumper(check_overflow=True, dump_path="./", load_file_path="") as dump:
            overflowing_step()
        print(json.dumps([hit["operator"] for hit in dump.overflows]))


def run(command, folder, **environment):
    """Shows and runs a command; returns its output and exit status."""
    print("$", " ".join(f"{k}={v}" for k, v in environment.items()), "python", *map(str, command[:3]), flush=True)
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={**os.environ, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    print("".join(f"    {line}\n" for line in done.stdout.splitlines()), flush=True)
    if done.returncode and "--worker" in command:
        sys.exit("a stage failed, see above")
    return done.stdout, done.returncode


def extract(operator, folder):
    """Copies one operator out of the dump, with the guide's h5copy where it is installed."""
    target = folder / "output.h5"
    if shutil.which("h5copy"):
        command = [
            "h5copy",
            "-pv",
            "-i",
            "model_npu.h5",
            "-o",
            target.name,
            "-s",
            f"/{operator}/",
            "-d",
            f"/{operator}/",
        ]
        print("$", *command)
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return
    import h5py

    with h5py.File(folder / "model_npu.h5", "r") as source, h5py.File(target, "w") as file:
        source.copy(operator, file.create_group(operator.split("/")[0]), name=operator.split("/")[1])


def walk(fault, folder):
    """All six steps in `folder`; returns the operators out of tolerance, bisect's one and those that overflowed."""
    run([HERE, "--worker", "cpu"], folder)
    run([HERE, "--worker", "npu"], folder, ASCEND_SIM_FAULT=fault)
    text, status = run([COMPARER, "compare", "-m", "model_npu.h5", "-g", "model_cpu.h5", "-out", "compared"], folder)
    (table,) = (folder / "compared").glob("*.csv")
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    found = {row["NPUDump"] for row in rows if "out of tolerance" in row["CompareFailReason"]}
    if status == 0:
        return found, "", []
    operator = text.partition("first operator out of tolerance: ")[2].split()[0]
    text, _ = run(["-m", "torch.utils.dumper", "bisect", HERE, "--out", "tests"], folder, ASCEND_SIM_FAULT=fault)
    bisected = text.partition("first operator out of tolerance: /")[2].partition(" ")[0]
    extract(operator, folder)
    config = {"dump_list": [], "dump_path": "./output_IR2TBE", "dump_mode": "all", "dump_op_switch": "on"}
    (folder / "acl.json").write_text(json.dumps({"dump": config}))
    run([HERE, "--worker", "acl"], folder, ASCEND_SIM_FAULT=fault)
    run([COMPARER, "convert", "-d", "output_IR2TBE", "-out", "numpy", "-v", "2"], folder)
    print("the device's operands:", *sorted(file.name for file in (folder / "numpy").glob("*.npy")), sep="\n    ")
    text, _ = run([HERE, "--worker", "overflow"], folder)
    return found, bisected, json.loads(text.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", default=FAULT, help="what the simulator plants (%(default)s)")
    parser.add_argument("--folder", help="where the files go (default: a temporary folder, removed)")
    parser.add_argument("--worker", choices=("cpu", "npu", "acl", "overflow"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(options.folder or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        found, bisected, overflowed = walk(options.fault, folder)
    print(f"out of tolerance: {', '.join(sorted(found)) or 'none'}; bisect names: {bisected}")
    print(f"overflowed: {', '.join(overflowed)}")
    if not options.fault:
        return 1 if found else 0
    planted = {"relu/2"} if options.fault == FAULT else {bisected}
    right = found == planted == {bisected} and overflowed == ["/mul/2"]
    print("the planted fault was found, and nothing else" if right else "that is not what was planted")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
