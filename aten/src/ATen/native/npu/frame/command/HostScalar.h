#pragma once
// Single values between Scalar, host memory and 0-d CPU tensors, for any dtype.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace at::native::npu {

// Bytes of one value of `dtype` at `data`.
Scalar read_scalar(const void* data, ScalarType dtype);
// Integers that do not fit are refused; floating-point values round, to infinity if need be.
void write_scalar(const Scalar& value, ScalarType dtype, void* data);
// The value of a CPU tensor with one element as `dtype`, converted as a cast converts: nothing is refused.
void write_cast(const Tensor& tensor, ScalarType dtype, void* data);
// Throws as upstream does when a number does not fit: what fills and masked fills refuse.
void check_fits(const Scalar& value, ScalarType dtype);
// The value of a CPU tensor with one element.
Scalar read_cpu_scalar(const Tensor& tensor);

}  // namespace at::native::npu
