#pragma once
// Arguments of activations as their IR operators spell them.

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

namespace at::native::npu {

// The approximation of GELU, checked.
inline std::string gelu_kind(std::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh", "approximate argument must be either none or tanh.");
  return std::string(approximate);
}

}  // namespace at::native::npu
