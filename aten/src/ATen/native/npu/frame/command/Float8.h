#pragma once
// The float8 types that CANN has no dtype for: what their codes stand for, and the codes of numbers. Both are looked up
// on the device, in tables that upstream's own conversions fill, so that rounding, overflow and NaN are upstream's.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/inference/Dtype.h>

namespace at::native::npu {

inline bool is_coded(ScalarType type) { return !has_acl_dtype(type) && isFloat8Type(type); }

// In fp32, which holds them all.
Tensor values_of_codes(const Tensor& float8);
// Bytes, of numbers in fp32.
Tensor codes_of_values(const Tensor& values, ScalarType type);

// A number as an element of that type holds it, which is computed with in a wider one; others as they are.
Scalar rounded_to(const Scalar& number, ScalarType type);
inline Scalar as_element(const Scalar& number, ScalarType type) {
  return C10_UNLIKELY(is_coded(type)) ? rounded_to(number, type) : number;
}

}  // namespace at::native::npu
