#pragma once
// What output rules of several families share.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/DimVector.h>

namespace at::native::npu::meta_rules {

// Sizes with the last ones replaced.
inline DimVector with_last(const Tensor& self, IntArrayRef last) {
  DimVector sizes(self.sizes().begin(), self.sizes().end() - static_cast<std::ptrdiff_t>(last.size()));
  sizes.append(last.begin(), last.end());
  return sizes;
}

// The options of a result that keeps the layout of a batch.
inline TensorOptions layout_of(const Tensor& self, int64_t batch_rank) {
  return self.dim() == batch_rank ? self.options().memory_format(self.suggest_memory_format()) : self.options();
}

inline void check_same_dtype(const char* name, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name, ": expected dtype ", a.scalar_type(), " but got dtype ",
              b.scalar_type());
}

}  // namespace at::native::npu::meta_rules
