"""Commands of libraries, and programs for several devices, as processes of their own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MARK = "LOSS"  # a program prints its losses as lines of MARK, the device's type, the number

# What each program begins with: a tiny model, its batches, and how it tells a loss.
BEGINNING = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import side_by_side
from tiny import llama, tokens
import torch

def tell(device, loss):
    print({MARK!r}, torch.device(device).type, float(loss), flush=True)
"""


def command(*words: str, **environment: str) -> str:
    """What `python words` prints; RuntimeError with its first traceback if it fails: a launcher adds its own behind."""
    # Launchers look for others by name beside the interpreter.
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    changed = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300, env=changed)
    if done.returncode:
        cause = done.stderr[max(done.stderr.find("Traceback"), 0) :][:4000]
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {cause}")
    return done.stdout


def losses_of(program: str, device: str, launcher: tuple[str, ...], *arguments: str, **environment: str) -> list[float]:
    """The losses that a program tells, all of them of `device`; a launcher is a module and its options, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(BEGINNING + program)
        text = command(*(("-m", *launcher) if launcher else ()), str(script), *arguments, **environment)
    lines = [line.split() for line in text.splitlines() if line.startswith(MARK)]
    if not lines or any(line[1] != device for line in lines):
        raise RuntimeError(f"no losses of {device} in: {text[-2000:]}")
    return [float(line[2]) for line in lines]
