#pragma once
// Operands of matrix products as their IR operators take them, and checks of them.

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <c10/util/DimVector.h>

#include <utility>

namespace at::native::npu {

// A matrix (or batch of them) whose memory is that of its transpose: the operator gets the memory and a flag.
inline bool is_turned(const Tensor& t) {
  const TensorImpl& m = *t.unsafeGetTensorImpl();
  const int64_t rank = m.dim();
  if (rank < 2 || m.is_contiguous()) return false;
  int64_t step = 1;
  const auto follows = [&](int64_t d) {
    const int64_t size = m.sizes()[d];
    const bool fits = size == 1 || m.strides()[d] == step;
    step *= size;
    return fits;
  };
  if (!follows(rank - 2) || !follows(rank - 1)) return false;
  for (int64_t d = rank - 3; d >= 0; --d) {
    if (!follows(d)) return false;
  }
  return true;
}

// The operand in the order of its memory: itself, without another reference to it (Note [Borrowed operands]), or the
// transpose, without a dispatch for it.
class Upright {
 public:
  explicit Upright(const Tensor& t) : given_(t) {
    if (C10_LIKELY(!is_turned(t))) return;
    if (C10_UNLIKELY(t.is_conj() || t.is_neg())) {
      turned_ = t.transpose(-2, -1);
      return;
    }
    DimVector sizes(t.sizes()), strides(t.strides());
    std::swap(sizes.end()[-1], sizes.end()[-2]);
    std::swap(strides.end()[-1], strides.end()[-2]);
    turned_ = alias(t, sizes, strides, t.storage_offset());
  }
  operator const Tensor&() const { return turned_.defined() ? turned_ : given_; }

 private:
  const Tensor& given_;
  Tensor turned_;
};
inline Upright upright(const Tensor& t) { return Upright(t); }

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
