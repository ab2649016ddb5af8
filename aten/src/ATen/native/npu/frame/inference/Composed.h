#pragma once
// Results that were computed of other operators, because the device lacks the one that does it at once.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/command/Missing.h>

#include <tuple>

namespace at::native::npu {

// Halves are computed with in fp32, so that they are rounded once.
inline ScalarType wide_type(ScalarType type) {
  return type == kHalf || type == kBFloat16 ? kFloat : type == kComplexHalf ? kComplexFloat : type;
}

// An operand in the dtype that is computed in.
inline Tensor wide(const Tensor& t, ScalarType compute) { return t.to(wide_type(compute)); }

// Puts what was computed where the results are wanted.
inline void put(const Tensor& value, const Tensor& result) { result.copy_(value); }
inline void put(const std::tuple<Tensor, Tensor>& values, const Tensor& first, const Tensor& second) {
  first.copy_(std::get<0>(values));
  second.copy_(std::get<1>(values));
}

}  // namespace at::native::npu
