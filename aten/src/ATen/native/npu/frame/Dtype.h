#pragma once
// Data types between ATen and ACL, and the dtype classes that the operator table speaks of.

#include <acl/acl_base.h>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstdint>

namespace at::native::npu {

// The ACL type of a scalar type; throws for types that no Ascend operator knows (quantised and sub-byte types).
aclDataType acl_dtype(ScalarType type);

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
