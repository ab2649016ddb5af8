#pragma once
// Data types between ATen and ACL, and the dtype classes that the operator table speaks of.

#include <acl/acl_base.h>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdint>

namespace at::native::npu {

namespace detail {

inline constexpr auto acl_dtypes = [] {
  std::array<aclDataType, static_cast<size_t>(ScalarType::NumOptions)> table{};
  for (auto& dtype : table) dtype = ACL_DT_UNDEFINED;
  table[static_cast<size_t>(ScalarType::Float)] = ACL_FLOAT;
  table[static_cast<size_t>(ScalarType::Double)] = ACL_DOUBLE;
  table[static_cast<size_t>(ScalarType::Half)] = ACL_FLOAT16;
  table[static_cast<size_t>(ScalarType::BFloat16)] = ACL_BF16;
  table[static_cast<size_t>(ScalarType::Bool)] = ACL_BOOL;
  table[static_cast<size_t>(ScalarType::Byte)] = ACL_UINT8;
  table[static_cast<size_t>(ScalarType::Char)] = ACL_INT8;
  table[static_cast<size_t>(ScalarType::Short)] = ACL_INT16;
  table[static_cast<size_t>(ScalarType::Int)] = ACL_INT32;
  table[static_cast<size_t>(ScalarType::Long)] = ACL_INT64;
  table[static_cast<size_t>(ScalarType::UInt16)] = ACL_UINT16;
  table[static_cast<size_t>(ScalarType::UInt32)] = ACL_UINT32;
  table[static_cast<size_t>(ScalarType::UInt64)] = ACL_UINT64;
  table[static_cast<size_t>(ScalarType::ComplexHalf)] = ACL_COMPLEX32;
  table[static_cast<size_t>(ScalarType::ComplexFloat)] = ACL_COMPLEX64;
  table[static_cast<size_t>(ScalarType::ComplexDouble)] = ACL_COMPLEX128;
  table[static_cast<size_t>(ScalarType::Float8_e5m2)] = ACL_FLOAT8_E5M2;
  table[static_cast<size_t>(ScalarType::Float8_e4m3fn)] = ACL_FLOAT8_E4M3FN;
  return table;
}();
[[noreturn]] void throw_no_dtype(ScalarType type);
[[noreturn]] void throw_not_implemented(ScalarType type, const char* name);

}  // namespace detail

// The ACL type of a scalar type; throws for types that no Ascend operator knows (quantised and sub-byte types).
inline aclDataType acl_dtype(ScalarType type) {
  const auto i = static_cast<size_t>(type);
  if (C10_UNLIKELY(i >= detail::acl_dtypes.size() || detail::acl_dtypes[i] == ACL_DT_UNDEFINED)) {
    detail::throw_no_dtype(type);
  }
  return detail::acl_dtypes[i];
}

inline bool has_acl_dtype(ScalarType type) {
  const auto i = static_cast<size_t>(type);
  return i < detail::acl_dtypes.size() && detail::acl_dtypes[i] != ACL_DT_UNDEFINED;
}

// A set of dtypes: a bit each.
using DtypeMask = uint64_t;
static_assert(static_cast<int>(ScalarType::NumOptions) <= 64);

constexpr DtypeMask dtype_bit(ScalarType type) { return DtypeMask{1} << static_cast<int>(type); }

template <class... T>
constexpr DtypeMask dtype_mask(T... types) {
  return (dtype_bit(types) | ...);
}

constexpr DtypeMask kDtypeFloat =
    dtype_mask(ScalarType::Float, ScalarType::Double, ScalarType::Half, ScalarType::BFloat16);
constexpr DtypeMask kDtypeInt =
    dtype_mask(ScalarType::Byte, ScalarType::Char, ScalarType::Short, ScalarType::Int, ScalarType::Long,
               ScalarType::UInt16, ScalarType::UInt32, ScalarType::UInt64);
constexpr DtypeMask kDtypeBool = dtype_bit(ScalarType::Bool);
constexpr DtypeMask kDtypeComplex =
    dtype_mask(ScalarType::ComplexHalf, ScalarType::ComplexFloat, ScalarType::ComplexDouble);
// Eight bits wide: what they hold can be moved, cast and compared; of the others CANN has no dtype.
constexpr DtypeMask kDtypeFloat8 =
    dtype_mask(ScalarType::Float8_e5m2, ScalarType::Float8_e4m3fn, ScalarType::Float8_e5m2fnuz,
               ScalarType::Float8_e4m3fnuz, ScalarType::Float8_e8m0fnu);
// One integer type alone, where the others are refused.
constexpr DtypeMask kDtypeUint8 = dtype_bit(ScalarType::Byte);
constexpr DtypeMask kDtypeInt64 = dtype_bit(ScalarType::Long);
constexpr DtypeMask kDtypeAny = ~DtypeMask{0};

// The dtype that a dtype of `narrow` is computed in, because the device has no kernel for it: fp32, or complex64.
constexpr ScalarType widened(ScalarType type, DtypeMask narrow) {
  if ((dtype_bit(type) & narrow) == 0) return type;
  return type == ScalarType::ComplexHalf ? ScalarType::ComplexFloat : ScalarType::Float;
}

// Upstream's error for a dtype that an operator is not made for.
inline void check_dtype(ScalarType type, DtypeMask allowed, const char* name) {
  if (C10_UNLIKELY((dtype_bit(type) & allowed) == 0)) detail::throw_not_implemented(type, name);
}

}  // namespace at::native::npu
