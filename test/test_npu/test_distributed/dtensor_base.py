"""Upstream's harness for tests of distributed tensors, DTensorTestBase, whose ranks are forks of one process that has
imported torch: an import takes seconds of a core. The harness itself chooses npu and hccl; a graft has it choose a
device for each rank."""

import contextlib
import multiprocessing
import os

from torch.testing._internal.distributed._tensor import common_dtensor

import torch

# What the forks find imported. Counting devices, as common_dtensor does, opens none.
_PRELOADED = ["torch", "torch.distributed.fsdp", "torch.distributed.tensor", "torch.distributed.checkpoint"]
_PRELOADED += ["torch.testing._internal.distributed._tensor.common_dtensor"]
DEVICES = 4  # as many as the largest group has ranks


def _server():
    """Where ranks are forked: a process with devices for each of them and one thread a rank."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    wanted = {"ASCEND_SIM_DEVICE_COUNT": str(DEVICES), "OMP_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context


class DTensorTest(common_dtensor.DTensorTestBase):
    """Each test runs on `world_size` ranks, each with an npu of its own, in a group of the back end hccl."""

    @property
    def world_size(self) -> int:
        return 2

    def _spawn_processes(self) -> None:
        self._start_processes(_server().Process)

    @contextlib.contextmanager
    def subTest(self, msg="", **_):
        """unittest's own says nothing in a rank, where no runner listens."""
        try:
            yield
        except Exception as error:
            raise AssertionError(f"{msg}: {type(error).__name__}: {error}") from error

    def assertClose(self, distributed, expected, **tolerances) -> None:
        """A distributed tensor, or one on npu, against what one process computes on the CPU."""
        if isinstance(distributed, torch.distributed.tensor.DTensor):
            distributed = distributed.full_tensor()
        self.assertEqual(distributed.device.type, "npu")
        torch.testing.assert_close(distributed.detach().cpu(), expected.detach(), **tolerances)
