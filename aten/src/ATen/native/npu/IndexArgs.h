#pragma once
// Checks of index operators that the table's expressions make on the host.

#include <ATen/core/Tensor.h>

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

}  // namespace at::native::npu
