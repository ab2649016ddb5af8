#pragma once
// Checks of index operators that the table's expressions make on the host.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Dtype.h>

#include <cmath>
#include <string>
#include <string_view>

namespace at::native::npu {

// An operator whose result has no elements is not issued, so the device meets none of its indices. Refuses any index
// into a dimension without elements: an IndexError where `index_error`, else a RuntimeError, as on the CPU.
void refuse_indices(const Tensor& self, int64_t dim, const Tensor& index, bool index_error = false);

// The name that ScatterElements has for one of scatter's reductions, which upstream's checks let through.
inline std::string scatter_reduction(std::string_view reduce) {
  return reduce == "multiply" ? "mul" : std::string(reduce);
}

// Upstream compares a few test elements one by one and sorts many, with kernels for different dtypes.
inline void check_isin(const Tensor& elements, const Tensor& test_elements) {
  if (elements.numel() == 0) return;
  const ScalarType type = promoteTypes(elements.scalar_type(), test_elements.scalar_type());
  const bool few = static_cast<double>(test_elements.numel()) <
                   std::floor(10.0f * std::pow(static_cast<double>(elements.numel()), 0.145));
  check_dtype(type, kDtypeFloat | kDtypeBool | (few ? kDtypePlainInt : kDtypeInt), "isin");
}

}  // namespace at::native::npu
