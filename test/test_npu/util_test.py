"""Inputs for operator tests, as the fork's tests make them from ``[dtype, format, shape]`` triples."""

from torch_npu.testing.common_utils import (  # noqa: F401
    PLAIN_FORMATS,
    PRIVATE_FORMATS,
    check_operators_in_prof,
    create_common_tensor,
    create_dtype_tensor,
)
