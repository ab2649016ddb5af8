#pragma once
// Dimension arguments as reductions and indexing pass them to IR operators: wrapped, and spelled out.

#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>
#include <c10/util/OptionalArrayRef.h>

#include <algorithm>
#include <numeric>

namespace at::native::npu {

inline int64_t wrapped(const Tensor& self, int64_t dim) { return at::maybe_wrap_dim(dim, self.dim()); }

inline DimVector every_dim(const Tensor& self) {
  DimVector dims(self.dim());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

// The listed dimensions; none given means every one, an empty list means none.
inline DimVector listed_dims(const Tensor& self, OptionalIntArrayRef dim) {
  if (!dim.has_value()) return every_dim(self);
  DimVector dims;
  for (const int64_t d : *dim) {
    const int64_t axis = wrapped(self, d);
    if (self.dim() == 0) continue;
    TORCH_CHECK(std::find(dims.begin(), dims.end(), axis) == dims.end(), "dim ", axis,
                " appears multiple times in the list of dims");
    dims.push_back(axis);
  }
  return dims;
}

// The same where upstream takes an empty list for every dimension.
inline DimVector reduced_dims(const Tensor& self, OptionalIntArrayRef dim) {
  return dim.has_value() && dim->empty() ? every_dim(self) : listed_dims(self, dim);
}
inline DimVector reduced_dims(const Tensor& self, IntArrayRef dim) {
  return reduced_dims(self, OptionalIntArrayRef(dim));
}
inline DimVector reduced_dims(const Tensor& self, int64_t dim) { return listed_dims(self, IntArrayRef(dim)); }

// A list of one dimension for operators that take it as an input; 0 where none is given.
inline DimVector one_dim(const Tensor& self, std::optional<int64_t> dim) {
  return {dim.has_value() ? wrapped(self, *dim) : 0};
}

}  // namespace at::native::npu
