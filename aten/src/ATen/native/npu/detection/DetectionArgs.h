#pragma once
// Arguments of operators over boxes.

#include <c10/util/Exception.h>
#include <cstdint>

namespace at::native::npu {

inline const char* overlap_mode(int64_t mode) {
  TORCH_CHECK(mode == 0 || mode == 1, "mode is 0 (intersection over union) or 1 (over foreground), got ", mode);
  return mode == 1 ? "iof" : "iou";
}

}  // namespace at::native::npu
