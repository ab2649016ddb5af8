# The proof of the porting tool on the scripts in cuda/: each is converted, trained a few steps on npu and on the CPU,
# and the losses are compared step by step.
"""python examples/porting/parity.py [--steps N] [--transfer] [--json] [SCRIPT ...]

Converts examples/porting/cuda with ms_fmk_transplt and runs every script (and architecture) on both devices from the
same seed; NPU_FALLBACK=0 in the environment lets only npu's own kernels pass. ``--transfer`` runs the unconverted
scripts with ``import torch.npu.transfer_to_npu`` instead. Exit status 1 if a script fails or a loss differs by more
than 1e-3.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CUDA = os.path.join(HERE, "cuda")
TOOL = os.path.join(HERE, "..", "..", "tools", "ms_fmk_transplt", "ms_fmk_transplt.py")
TOLERANCE = 1e-3  # relative, per step: a few steps from the same state, before rounding has grown
# script: (the option that keeps it on the CPU, its variants)
SCRIPTS = {
    "resnet": (
        ["--no-cuda"],
        ["--arch resnet50", "--arch resnet18", "--arch resnext50", "--arch wide_resnet50_2", "--arch genet"],
    ),
    "densenet": (["--device", "cpu"], [""]),
    "vgg": (["--cpu"], ["--arch vgg11", "--arch alexnet", "--arch vgg16 --bn", "--attributes"]),
    "mobile": (
        ["--use_gpu", "no"],
        [f"--arch {a}" for a in ("mobilenetv1", "mobilenetv2", "mnasnet", "shufflenetv2", "squeezenet")],
    ),
    "inception": (["--gpu-id", "-1"], [""]),
    "segmentation": (["--device", "cpu"], ["--arch unet", "--arch fcn", "--arch deeplabv3plus"]),
    "volumes": (["--no_cuda"], ["", "--attention"]),
    "faces": (["--cpu"], ["--net pnet", "--net rnet"]),
    "text_detection": (["--cpu"], ["", "--kernels 2"]),
    "text_recognition": (["--cuda", "False"], [""]),
    "sequence": (["--cpu"], ["--cell LSTM", "--cell GRU"]),
    "gan": (["--device", "cpu"], [""]),
    "recommendation": (["--gpu", "-1"], [""]),
    "optical_flow": (["--cpu"], [""]),
    "vit": (["--device", "cpu"], [""]),
}


def convert(folder: str) -> str:
    """Convert cuda/ into ``folder``; returns the result's path."""
    subprocess.run([sys.executable, TOOL, "-i", CUDA, "-o", folder], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "cuda_msft")


def run(module, options: list[str]) -> list[float]:
    """The losses of one training run; what it prints is swallowed."""
    with contextlib.redirect_stdout(io.StringIO()):
        return module.main(options)


def compare(name: str, variant: str, steps: int) -> dict:
    """Train on both devices; ``error`` is the largest relative difference of a step's losses."""
    cpu, _ = SCRIPTS[name]
    options = ["--steps", str(steps), *variant.split()]
    row = {"script": name, "variant": variant, "error": None, "failure": "", "losses": []}
    module = importlib.import_module(name)
    expected = run(module, options + cpu)
    began = time.perf_counter()
    try:
        row["losses"] = run(module, options)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        row["failure"] = str(error).split(" with arguments")[0].splitlines()[0][:120]
        return row
    row["seconds"] = round(time.perf_counter() - began, 2)
    pairs = zip(expected, row["losses"], strict=True)
    row["error"] = max(abs(a - b) / max(abs(a), 1e-3) for a, b in pairs)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", default=list(SCRIPTS), metavar="SCRIPT")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--transfer", action="store_true", help="run the unconverted scripts")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, CUDA if args.transfer else convert(folder))
        sys.dont_write_bytecode = True
        if args.transfer:
            importlib.import_module("torch.npu.transfer_to_npu")
        rows = []
        for name in args.scripts:
            for variant in SCRIPTS[name][1]:
                row = compare(name, variant, args.steps)
                rows.append(row)
                if not args.json:
                    result = f"failed: {row['failure']}" if row["failure"] else f"{row['error']:.1e}"
                    print(f"{name:18}{variant:26}{result}", flush=True)
    if args.json:
        print(json.dumps(rows))
    return 1 if any(row["failure"] or row["error"] > TOLERANCE for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
