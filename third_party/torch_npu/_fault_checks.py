"""`torch_npu.matmul_checksum`: whether a product may be what a faulty core made of its factors."""

import torch


def matmul_checksum(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Return, as a bool tensor without dimensions, whether ``c`` cannot be ``a @ b``: a fault of the hardware.

    The sum of each row of ``c`` is compared with the row of ``a`` times the sums of the rows of ``b``, in float32. The
    bound is what rounding to bfloat16 may change.

    Args:
        a, b: factors, bfloat16, on an NPU.
        c: their product by torch.matmul.

    Raises:
        TypeError: a tensor is not of bfloat16 on an NPU.
    """
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        if tensor.dtype is not torch.bfloat16 or tensor.device.type != "npu":
            raise TypeError(
                f"matmul_checksum: {name} must be of bfloat16 on an NPU, not {tensor.dtype} on {tensor.device}"
            )
    left, right, product = a.float(), b.float(), c.float()
    wanted = torch.matmul(left, right.sum(-1, keepdim=True)).squeeze(-1)
    # Each element is rounded by up to 2^-8 of itself; sums of n products in float32 add n 2^-23 of their magnitudes.
    magnitude = torch.matmul(left.abs(), right.abs().sum(-1, keepdim=True)).squeeze(-1)
    terms = left.shape[-1] + right.shape[-1]
    bound = product.abs().sum(-1) * 2.0**-8 + magnitude * (terms * 2.0**-23)
    # Written so that an element which is no number is a fault.
    return ~((product.sum(-1) - wanted).abs() <= bound).all()
