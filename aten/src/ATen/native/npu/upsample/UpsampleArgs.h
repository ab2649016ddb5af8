#pragma once
// Scales and sizes of resizing as IR operators spell them.

#include <ATen/native/npu/frame/inference/Numbers.h>
#include <c10/util/SmallVector.h>

namespace at::native::npu {

// Whether the spatial sizes, in `from` behind two others, are in the ratios that the scales given ask for.
inline bool sizes_tell(IntArrayRef from, IntArrayRef to, std::initializer_list<std::optional<double>> scales) {
  size_t i = 0;
  for (const std::optional<double>& scale : scales) {
    const double ratio = static_cast<double>(from[i + 2]) / static_cast<double>(to[i]);
    if (scale.has_value() && 1.0 / *scale != ratio) return false;
    ++i;
  }
  return true;
}

// Scales as an attribute; 0 where none is given.
inline c10::SmallVector<double, 3> scale_list(std::initializer_list<std::optional<double>> values) {
  c10::SmallVector<double, 3> scales;
  for (const std::optional<double>& value : values) scales.push_back(value.value_or(0));
  return scales;
}

}  // namespace at::native::npu
