#pragma once
// Arguments of the operators over images and volumes as their IR operators spell them; used by the table's expressions.

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <charconv>
#include <initializer_list>
#include <optional>

namespace at::native::npu {

// Padding of the last dimensions, given last first, as [before, after] of every dimension from the first.
inline DimVector paddings_of(const Tensor& self, IntArrayRef padding) {
  DimVector out(2 * static_cast<size_t>(self.dim()), 0);
  for (size_t i = 0; i + 1 < padding.size(); i += 2) {
    out[out.size() - 2 - i] = padding[i];
    out[out.size() - 1 - i] = padding[i + 1];
  }
  return out;
}

// Whether an fp32 attribute stands for each of the numbers given: it is the shortest decimal number of some fp32.
inline bool are_fp32(std::initializer_list<std::optional<double>> values) {
  for (const std::optional<double>& value : values) {
    if (!value.has_value()) continue;
    char digits[64];
    double decimal = 0;
    const auto written = std::to_chars(digits, digits + sizeof digits, static_cast<float>(*value));
    std::from_chars(digits, written.ptr, decimal);
    if (decimal != *value) return false;
  }
  return true;
}

// Whether these attributes carry the numbers as precisely as the operator computes.
inline bool attrs_hold(ScalarType compute, std::initializer_list<std::optional<double>> values) {
  return isReducedFloatingType(compute) || compute == kFloat || compute == kComplexFloat || are_fp32(values);
}

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
