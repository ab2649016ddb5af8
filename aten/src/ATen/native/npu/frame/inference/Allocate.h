#pragma once
// New device tensors without a trip through the dispatcher.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/ArrayRef.h>

namespace at::native::npu {

// A contiguous tensor with the sizes and device of `like`.
Tensor empty_as(const Tensor& like, ScalarType dtype);
inline Tensor empty_as(const Tensor& like) { return empty_as(like, like.scalar_type()); }
Tensor empty_npu(IntArrayRef sizes, ScalarType dtype, Device device);
Tensor empty_npu(IntArrayRef sizes, IntArrayRef strides, ScalarType dtype, Device device);
// With the sizes of `like`, and its strides if those are dense and non-overlapping, else contiguous.
Tensor empty_preserved(const Tensor& like, ScalarType dtype);

// Another view of the memory of `base`.
Tensor alias(const Tensor& base, IntArrayRef sizes, IntArrayRef strides, int64_t offset);

// The device that a factory's arguments mean: the current npu where no index is given.
Device resolve_device(std::optional<Device> device);

}  // namespace at::native::npu
