r"""What watches over a device: a bound on how long an operator may take, and a test of whether it computes rightly."""

import logging
import os

import torch

__all__ = ["set_op_timeout_ms", "stress_detect"]

_log = logging.getLogger(__name__)

PASSED, NOT_RUN, FAULTY = range(3)
_SIZE = 256
_ROUNDS = 4


def set_op_timeout_ms(timeout: int) -> None:
    r"""Bound how long an operator of an NPU may take; one that takes longer ends with an error at the next wait.

    Args:
        timeout (int): milliseconds. A CANN before 9.0 counts seconds; they are rounded up.

    Raises:
        ValueError: ``timeout`` is no positive number of milliseconds.
    """
    if not isinstance(timeout, int) or isinstance(timeout, bool) or not 0 < timeout < 2**32:
        raise ValueError(f"set_op_timeout_ms: the timeout is a positive number of milliseconds, not {timeout!r}")
    torch.npu._lazy_init()
    torch._C._npu_setOpTimeout(timeout)


def stress_detect(detect_type: str = "aic") -> int:
    r"""Test whether the current NPU computes, or talks to its neighbours, without silent errors.

    It computes with small whole numbers, whose products and sums every dtype holds exactly, and compares with the host.

    Args:
        detect_type (str): ``"aic"`` (default): matrix products and element-wise operators of this NPU. ``"hccs"``:
            sums over the NPUs of this host; all processes of the default process group call it.

    Returns:
        int: 0 passed, 1 could not be run (an error is logged, or there is no such type), 2 a result was wrong.
    """
    try:
        if detect_type == "aic":
            return _compute()
        if detect_type == "hccs":
            return _communicate()
    except RuntimeError as error:
        _log.error("stress_detect(%r) could not be run: %s", detect_type, error)
    return NOT_RUN


def _compute() -> int:
    generator = torch.Generator().manual_seed(0)
    for _ in range(_ROUNDS):
        # Sums of 256 products of up to 4 are whole numbers below 2048, which float16 holds exactly; bfloat16 holds
        # numbers up to 256, so its products are of 0 and 1.
        for dtype, most in ((torch.float32, 2), (torch.float16, 2), (torch.bfloat16, 1)):
            a, b = (torch.randint(0, most + 1, (_SIZE, _SIZE), generator=generator) for _ in range(2))
            wanted = a @ b
            x, y = a.to("npu", dtype), b.to("npu", dtype)
            product = x @ y
            results = (
                (product, wanted),
                (x + y, a + b),
                (x * y, a * b),
                (product.sum(1, dtype=torch.float32), wanted.sum(1)),
            )
            for found, right in results:
                if not torch.equal(found.cpu().long(), right):
                    _log.error("stress_detect: a result of %s is wrong on npu:%d", dtype, torch.npu.current_device())
                    return FAULTY
    return PASSED


def _communicate() -> int:
    from torch import distributed

    if not distributed.is_initialized():
        raise RuntimeError("there is no default process group; call torch.distributed.init_process_group first")
    world = distributed.get_world_size()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    group = None
    if local < world:
        group, _ = distributed.new_subgroups(local)
    size, rank = distributed.get_world_size(group), distributed.get_rank(group)
    numbers = torch.arange(_SIZE * _SIZE) % 1024
    passed = True
    for _ in range(_ROUNDS):
        mine = (numbers + rank).to("npu", torch.float32)
        distributed.all_reduce(mine, group=group)
        passed = passed and torch.equal(mine.cpu().long(), numbers * size + size * (size - 1) // 2)
    if not passed:
        _log.error("stress_detect: a sum over the NPUs of this host is wrong on npu:%d", torch.npu.current_device())
    return PASSED if passed else FAULTY
