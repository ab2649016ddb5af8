#pragma once
// How the elements of a tensor lie in memory, read from its sizes and strides. What changes it is an operator:
// command/Rearrange.h.

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

// The view with each place of an expanded tensor once: without the dimensions along which it repeats its memory.
Tensor without_repeats(const Tensor& self);

}  // namespace at::native::npu
