#pragma once
// Numbers of operators and what an attribute of an IR operator, which is fp32, can hold of them.

#include <ATen/core/Tensor.h>

#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>

namespace at::native::npu {

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

// The largest number of a floating-point type of at most 32 bits.
inline double largest(ScalarType type) {
  return type == kHalf       ? static_cast<double>(std::numeric_limits<c10::Half>::max())
         : type == kBFloat16 ? static_cast<double>(std::numeric_limits<c10::BFloat16>::max())
                             : static_cast<double>(std::numeric_limits<float>::max());
}

}  // namespace at::native::npu
