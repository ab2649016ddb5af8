// The table between ATen's and ACL's data types.

#include <ATen/native/npu/frame/Dtype.h>

namespace at::native::npu {

aclDataType acl_dtype(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return ACL_FLOAT;
    case ScalarType::Double:
      return ACL_DOUBLE;
    case ScalarType::Half:
      return ACL_FLOAT16;
    case ScalarType::BFloat16:
      return ACL_BF16;
    case ScalarType::Bool:
      return ACL_BOOL;
    case ScalarType::Byte:
      return ACL_UINT8;
    case ScalarType::Char:
      return ACL_INT8;
    case ScalarType::Short:
      return ACL_INT16;
    case ScalarType::Int:
      return ACL_INT32;
    case ScalarType::Long:
      return ACL_INT64;
    case ScalarType::UInt16:
      return ACL_UINT16;
    case ScalarType::UInt32:
      return ACL_UINT32;
    case ScalarType::UInt64:
      return ACL_UINT64;
    case ScalarType::ComplexHalf:
      return ACL_COMPLEX32;
    case ScalarType::ComplexFloat:
      return ACL_COMPLEX64;
    case ScalarType::ComplexDouble:
      return ACL_COMPLEX128;
    case ScalarType::Float8_e5m2:
      return ACL_FLOAT8_E5M2;
    case ScalarType::Float8_e4m3fn:
      return ACL_FLOAT8_E4M3FN;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "npu has no data type for ", toString(type));
  }
}

}  // namespace at::native::npu
