#pragma once
// New outputs of kernels that serve npu tensors and, for shapes alone, meta tensors.

#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/ops/empty.h>

namespace at::native::npu {

inline Tensor new_like(const Tensor& like, IntArrayRef sizes, ScalarType dtype) {
  return like.is_meta() ? at::empty(sizes, like.options().dtype(dtype)) : empty_npu(sizes, dtype, like.device());
}

inline Tensor new_like(const Tensor& like, IntArrayRef sizes) { return new_like(like, sizes, like.scalar_type()); }
inline Tensor new_like(const Tensor& like) { return new_like(like, like.sizes()); }

// numel() refuses a tensor that is traced with symbols for its sizes; asked like this the graph is for these sizes.
inline int64_t elements(const Tensor& t) { return c10::multiply_integers(t.sizes()); }

}  // namespace at::native::npu
