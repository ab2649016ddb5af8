"""One rank that runs tests of upstream's DistributedTest, which is written for `torch.cuda` and nccl, one after
another: `transfer_to_npu` gives the devices, groups and back ends of npu those names.

Reads a line (name of the test, file for the group to meet) for each test, and answers with a line of JSON: outcome
("right", "skipped", "wrong") and reason. Ends after a test that was wrong, since its group may be in any state.
"""

import contextlib
import functools
import json
import os
import sys
import traceback
import unittest
import warnings
from datetime import timedelta
from unittest import mock

import torch
from torch.npu import transfer_to_npu  # noqa: F401

torch.cuda.nccl.version = lambda: (2, 28, 0)  # asked while the tests are declared

import torch.distributed as dist  # noqa: E402
from torch.testing._internal import common_utils  # noqa: E402
from torch.testing._internal.common_distributed import TEST_SKIPS  # noqa: E402
from torch.testing._internal.distributed.distributed_test import (  # noqa: E402
    DistributedTest,
    TestDistBackend,
)

SKIPPED = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}


class Upstream(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        pass

    def tearDown(self):
        pass


def smaller_images(name: str) -> contextlib.ExitStack:
    """Some tests train ResNet-50 on images of 1000 x 1000 for up to an hour of two cores: 64 x 64 do as well."""
    stack = contextlib.ExitStack()
    if name.startswith(("test_ddp_uneven_inputs", "test_ddp_apply_optim_in_backward")):
        for maker in (torch.ones, torch.randn):
            stack.enter_context(mock.patch.object(torch, maker.__name__, functools.partial(make_smaller, maker)))
    return stack


def make_smaller(maker, *size, **options):
    return maker(*(min(length, 64) for length in size) if len(size) == 4 else size, **options)


def run(name: str, file: str, rank: int) -> tuple[str, str]:
    """Outcome and reason of one test."""
    declared = getattr(Upstream, name)
    if getattr(declared, "__unittest_skip__", False):
        return "skipped", declared.__unittest_skip_why__
    case = Upstream(name)
    case.rank, case.file_name = rank, file
    try:
        dist.init_process_group(
            "nccl",
            init_method=case.init_method,
            world_size=int(case.world_size),
            rank=rank,
            timeout=timedelta(seconds=60),
        )
        common_utils.set_rng_seed()
        with smaller_images(name):
            getattr(case, name)()
        case._barrier()
        if dist.is_initialized():
            dist.destroy_process_group()
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as end:
        if end.code in SKIPPED:
            return "skipped", SKIPPED[end.code]
        return ("right", "") if end.code in (0, None) else ("wrong", f"exit code {end.code}")
    except BaseException:  # the next rank must hear of anything
        return "wrong", traceback.format_exc()
    return "right", ""


def main() -> None:
    rank = int(sys.argv[1])
    # Tests write to stdout: answers go through a copy of it.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.npu.set_device(rank)
    print(json.dumps(sorted(n for n in dir(Upstream) if n.startswith("test_"))), file=answers, flush=True)
    for line in sys.stdin:
        name, file = line.split()
        outcome, reason = run(name, file, rank)
        print(json.dumps([outcome, reason]), file=answers, flush=True)
        if outcome == "wrong":
            break
        if dist.is_initialized():  # a skipped test
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
