#pragma once
// Arguments of losses as their IR operators spell them.

#include <ATen/core/Reduction.h>
#include <cstdint>

namespace at::native::npu {

inline const char* reduction_name(int64_t reduction) {
  return reduction == Reduction::None ? "none" : (reduction == Reduction::Mean ? "mean" : "sum");
}

}  // namespace at::native::npu
