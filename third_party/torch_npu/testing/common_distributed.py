"""Conditions and groups of tests on several NPUs."""

import functools
import unittest
from typing import NamedTuple

import torch.distributed as dist

import torch


class TestSkip(NamedTuple):
    """The exit code by which a rank says that its test is left out, and why."""

    exit_code: int
    message: str


def skipIfUnsupportMultiNPU(npu_number_needed):
    """A test that needs so many NPUs."""

    def decorate(fn):
        @functools.wraps(fn)
        def checked(*args, **kwargs):
            if torch.npu.device_count() < npu_number_needed:
                raise unittest.SkipTest(f"needs {npu_number_needed} NPUs, and there are {torch.npu.device_count()}")
            return fn(*args, **kwargs)

        return checked

    return decorate


def init_pg(backend: str = "hccl", world_size=1, rank=0, file_name="file://") -> None:
    """Make this process a rank of the default group; its NPU is that of the rank's number.

    Args:
        backend: ``hccl``, or ``gloo``.
        world_size, rank: ranks of the group, and this one's number.
        file_name: where the ranks meet, ``file://`` and the path of a file.
    """
    if backend == "hccl":
        torch.npu.set_device(rank)
    dist.init_process_group(backend, init_method=file_name, world_size=world_size, rank=rank)


def with_comms(func):
    """A test method inside a group of its object's ``world_size``, ``rank``, ``file_name`` and ``backend`` ("hccl")."""

    @functools.wraps(func)
    def inside(self, *args, **kwargs):
        place = self.file_name if "://" in self.file_name else f"file://{self.file_name}"
        init_pg(getattr(self, "backend", "hccl"), self.world_size, self.rank, place)
        try:
            return func(self, *args, **kwargs)
        finally:
            dist.barrier()
            dist.destroy_process_group()

    return inside
