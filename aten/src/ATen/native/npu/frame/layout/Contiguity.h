#pragma once
// Strided tensors on a device whose operators read and write contiguous memory: a view becomes contiguous through one
// IR operator, and a result goes into a strided view through one ViewCopy.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/DimVector.h>

namespace at::native::npu {

// True for a tensor whose elements fill one block of memory, each once, in whatever order of dimensions.
bool is_dense(IntArrayRef sizes, IntArrayRef strides);
inline bool is_dense(const Tensor& t) { return t.is_non_overlapping_and_dense(); }

// The dimensions of a dense tensor from the slowest to the fastest in memory.
DimVector memory_order(IntArrayRef sizes, IntArrayRef strides);

// True for tensors of the same sizes whose elements lie in the same order, each in one block of memory.
inline bool same_order(const Tensor& a, const Tensor& b) {
  return (a.is_contiguous() && b.is_contiguous()) || (is_dense(a) && a.strides() == b.strides());
}
// The elements of a dense tensor in the order in which they lie: the tensor itself if contiguous, else one dimension.
Tensor in_memory_order(const Tensor& dense);

// True if `sizes` with `strides` lie in memory as a contiguous tensor of those sizes.
bool is_contiguous_as(IntArrayRef sizes, IntArrayRef strides);

// Elements from the first to the last that a view touches, both included; 0 for an empty view.
int64_t extent(IntArrayRef sizes, IntArrayRef strides);

// The tensor itself if contiguous, else a contiguous copy made by one IR operator.
Tensor contiguous(const Tensor& tensor);
// A contiguous copy of a view, given by other sizes and strides over the memory of `base` from its first element.
Tensor gather_view(const Tensor& base, IntArrayRef sizes, IntArrayRef strides);

// The tensor in another dtype; dense strides are kept.
Tensor cast(const Tensor& tensor, ScalarType dtype);
// Casts into `target`, which has the same sizes and any strides.
void cast_into(const Tensor& target, const Tensor& source);

// The view with each place of an expanded tensor once: without the dimensions along which it repeats its memory.
Tensor without_repeats(const Tensor& self);

// target[...] = source for device tensors of one device, sizes and dtype; any strides, no overlap.
void copy_same_dtype(const Tensor& target, const Tensor& source);

}  // namespace at::native::npu
