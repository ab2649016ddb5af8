#pragma once
// The two halves of a dimension, as gated activations take them.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/npu/frame/inference/Wide.h>

namespace at::native::npu {

struct Halves {
  Tensor left, right;
};

// In the dtype that sums are made in.
inline Halves halves(const char* name, const Tensor& self, int64_t dim) {
  check_floating(name, self);
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim());
  // That dimension alone: others may be symbols.
  const int64_t size = self.dim() > 0 ? self.sym_size(axis).guard_int(__FILE__, __LINE__) : 1;
  TORCH_CHECK(size % 2 == 0, name, ": dimension ", dim, " must be even to be halved, but the shape is ", self.sizes());
  const int64_t half = size / 2;
  const Tensor wide = self.to(wide_type(self));
  return {wide.narrow(axis, 0, half), wide.narrow(axis, half, half)};
}

}  // namespace at::native::npu
