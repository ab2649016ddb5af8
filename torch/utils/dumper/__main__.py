# python -m torch.utils.dumper bisect SCRIPT
"""Command line of the operator dump."""

import argparse
import sys

from . import _bisect

_EPILOG = """
What this command does not know is passed to the script: bisect main.py --devices cpu,npu --arch resnet50

The script gets its device in one of these ways: it defines `step(device)`, which is called; `{device}` in its arguments
is replaced; it reads DUMPER_DEVICE from the environment; or it names "npu" or "cuda", which is taken to mean the device
of the run. It runs until its first optimizer step (see --steps) or its end, once on each device, with the same seeds.

exit status: 0 no operator is out of tolerance; 1 one is, named on stdout; 2 nothing could be compared.
"""


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return value


def _limit(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    p = argparse.ArgumentParser(prog="python -m torch.utils.dumper", description="Tools of the operator dump.")
    commands = p.add_subparsers(dest="command", required=True, metavar="bisect")
    b = commands.add_parser(
        "bisect",
        help="find the first operator that two devices compute differently",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --device is the script's
    )
    b.add_argument("script", metavar="SCRIPT", help="a training script; it takes one step on each device")
    b.add_argument("--devices", default="cpu,npu", metavar="A,B", help="device to trust, device to check (%(default)s)")
    b.add_argument("--out", default=".", metavar="DIR", help="where the single-operator test goes (%(default)s)")
    b.add_argument("--steps", type=_count, default=1, metavar="N", help="optimizer steps to look at (%(default)s)")
    b.add_argument("--rtol", type=_limit, metavar="X", help="largest relative Euclidean distance (by dtype)")
    b.add_argument("--atol", type=_limit, metavar="X", help="largest absolute error that is always allowed (by dtype)")
    b.add_argument("--seed", type=int, default=0, metavar="N", help="seed of both runs (%(default)s)")
    return p


def parse(arguments=None) -> argparse.Namespace:
    """The options; `arguments` of the result is what is meant for the script."""
    options, rest = parser().parse_known_args(arguments)
    options.arguments = rest[1:] if rest[:1] == ["--"] else rest
    return options


if __name__ == "__main__":
    sys.exit(_bisect.main(parse()))
