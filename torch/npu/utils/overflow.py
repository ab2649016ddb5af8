r"""Whether something overflowed, in either mode of the chip: with infinities and NaN, or saturating."""

import warnings

import torch

__all__ = ["clear_npu_overflow_flag", "get_npu_overflow_flag", "is_support_inf_nan", "npu_check_overflow"]

_FIRST_WITH_INF_NAN = 220  # Ascend910B1


def is_support_inf_nan() -> bool:
    r"""Return whether results that overflow are infinite or NaN.

    So it is on chips from Ascend910B1 on, unless ``INF_NAN_MODE_ENABLE=0`` asks for saturation: the largest number.
    """
    from . import get_soc_version

    return get_soc_version() >= _FIRST_WITH_INF_NAN and not torch._C._npu_saturates()


def get_npu_overflow_flag() -> bool:
    r"""Return whether an operator of the current NPU has overflowed since the flag was cleared; waits for the device.

    The device looks for overflows from the first call of this or of :func:`clear_npu_overflow_flag` on; in saturation
    mode from the start.
    """
    status = torch.ops.npu.npu_alloc_float_status(torch.empty(1, device="npu"))
    torch.ops.npu.npu_get_float_status(status)
    return bool(status[0].item())


def clear_npu_overflow_flag() -> None:
    r"""Clear the flag of the current NPU. With infinities and NaN there is no need to: warns and does nothing."""
    if is_support_inf_nan():
        warnings.warn(
            "clear_npu_overflow_flag: overflows show as Inf and NaN here, and there is no flag to clear; "
            "look with torch.npu.utils.npu_check_overflow",
            stacklevel=2,
        )
        return
    torch.ops.npu.npu_clear_float_status(torch.ops.npu.npu_alloc_float_status(torch.empty(1, device="npu")))


def npu_check_overflow(grad: "torch.Tensor | float") -> bool:
    r"""Return whether a gradient overflowed; waits for the device.

    Args:
        grad (Tensor or float): where overflows are infinite or NaN, what is looked at; in saturation mode the device's
            flag tells, and this is not looked at.

    Raises:
        TypeError: ``grad`` is neither.
    """
    if not isinstance(grad, (torch.Tensor, float, int)):
        raise TypeError(f"npu_check_overflow: a tensor or a float expected, not {type(grad).__name__}")
    if not is_support_inf_nan():
        return get_npu_overflow_flag()
    if not isinstance(grad, torch.Tensor):
        return grad != grad or grad in (float("inf"), float("-inf"))
    return not bool(torch.isfinite(grad).all().item())
