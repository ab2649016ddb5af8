#pragma once
// Strided tensors on a device whose operators read and write contiguous memory: a view becomes contiguous through one
// IR operator, and a result goes into a strided view through one ViewCopy. Casts, which are operators as well.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

namespace at::native::npu {

// The tensor itself if contiguous, else a contiguous copy made by one IR operator.
Tensor contiguous(const Tensor& tensor);
// A contiguous copy of a view, given by other sizes and strides over the memory of `base` from its first element.
Tensor gather_view(const Tensor& base, IntArrayRef sizes, IntArrayRef strides);

// The tensor in another dtype; dense strides are kept.
Tensor cast(const Tensor& tensor, ScalarType dtype);
// Casts into `target`, which has the same sizes and any strides.
void cast_into(const Tensor& target, const Tensor& source);

// target[...] = source for device tensors of one device, sizes and dtype; any strides, no overlap.
void copy_same_dtype(const Tensor& target, const Tensor& source);

}  // namespace at::native::npu
