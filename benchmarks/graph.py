#!/usr/bin/env python3
"""Graphs on npu:0 against eager runs, part by part: what a part measures stands in its file.

Exit status 0 says that the figures are valid, whether or not they meet the targets; 3 that other processes were in the
way.
"""

import argparse
import importlib

from _common import Machine, Targets, add_arguments, describe_machine, require_npu

# The name of each part, and the file whose run(targets, rounds) it is.
PARTS = {"npugraph": "graph_replay", "lazy": "graph_lazy"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=10, help="turns of each candidate (default: %(default)s)")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part (default: all)")
    args = parser.parse_args()
    require_npu()
    print(describe_machine())
    targets = Targets()
    with Machine(args):
        for name in args.only or PARTS:
            print(f"== {name}")
            importlib.import_module(PARTS[name]).run(targets, args.rounds)
    targets.show()


if __name__ == "__main__":
    main()
