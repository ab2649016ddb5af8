#pragma once
// Operands of matrix products as their IR operators take them, and checks of them.

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>

namespace at::native::npu {

// A matrix (or batch of them) whose memory is that of its transpose: the operator gets the memory and a flag.
inline bool is_turned(const Tensor& t) {
  return !t.is_contiguous() && t.dim() >= 2 && t.transpose(-2, -1).is_contiguous();
}

inline Tensor upright(const Tensor& t) { return is_turned(t) ? t.transpose(-2, -1) : t; }

// What upstream's meta functions of products leave to the CPU's kernels.
inline void check_factors(const Tensor& first, const Tensor& second) {
  TORCH_CHECK(first.scalar_type() == second.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", first.dtype(), " != ", second.dtype());
}

inline void check_summand(const char* name, const Tensor& summand, const Tensor& result) {
  TORCH_CHECK(at::is_expandable_to(summand.sizes(), result.sizes()), name, ": The expanded size of the tensor ",
              result.sizes(), " does not fit the input of size ", summand.sizes(),
              ": give an input that can be broadcast to the product");
}

}  // namespace at::native::npu
