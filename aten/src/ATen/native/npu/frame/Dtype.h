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

}  // namespace detail

// The ACL type of a scalar type; throws for types that no Ascend operator knows (quantised and sub-byte types).
inline aclDataType acl_dtype(ScalarType type) {
  const auto i = static_cast<size_t>(type);
  if (C10_UNLIKELY(i >= detail::acl_dtypes.size() || detail::acl_dtypes[i] == ACL_DT_UNDEFINED)) {
    detail::throw_no_dtype(type);
  }
  return detail::acl_dtypes[i];
}

using DtypeMask = uint32_t;
constexpr DtypeMask kDtypeFloat = 1;
constexpr DtypeMask kDtypeInt = 2;
constexpr DtypeMask kDtypeBool = 4;
constexpr DtypeMask kDtypeComplex = 8;
// One integer type alone, where the others are refused.
constexpr DtypeMask kDtypeUint8 = 16;
constexpr DtypeMask kDtypeInt64 = 32;
constexpr DtypeMask kDtypeAny = 0xFFFFFFFF;

inline DtypeMask dtype_class(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
    case ScalarType::Double:
    case ScalarType::Half:
    case ScalarType::BFloat16:
      return kDtypeFloat;
    case ScalarType::Bool:
      return kDtypeBool;
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Short:
    case ScalarType::Int:
    case ScalarType::Long:
    case ScalarType::UInt16:
    case ScalarType::UInt32:
    case ScalarType::UInt64:
      return kDtypeInt;
    case ScalarType::ComplexHalf:
    case ScalarType::ComplexFloat:
    case ScalarType::ComplexDouble:
      return kDtypeComplex;
    default:
      return 1U << 31;
  }
}

// Upstream's error for a dtype that an operator is not made for.
inline void check_dtype(ScalarType type, DtypeMask allowed, const char* name) {
  const DtypeMask alone = type == ScalarType::Byte ? kDtypeUint8 : type == ScalarType::Long ? kDtypeInt64 : 0;
  const DtypeMask mine = dtype_class(type) | alone;
  TORCH_CHECK_NOT_IMPLEMENTED((mine & allowed) != 0, '"', name, "\" not implemented for '", toString(type), "'");
}

}  // namespace at::native::npu
