#include "exec/definition/tensor_desc.h"

#include <cstring>

#include "core/stamp.h"

void aclTensorDesc::set_dims(int count, const int64_t* values) {
  ndim = count;
  if (count <= kInline) {
    for (int i = 0; i < count; ++i) small[i] = values[i];
  } else {
    large.assign(values, values + count);
  }
}

void aclTensorDesc::renew() {
  stamp = acl_sim::Stamp::next();
  launched.store(false, std::memory_order_relaxed);
}

namespace acl_sim {

size_t dtype_bytes(aclDataType dtype) {
  switch (dtype) {
    case ACL_BOOL:
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0:
      return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
      return 4;
    case ACL_DOUBLE:
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_COMPLEX64:
      return 8;
    case ACL_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

const char* dtype_name(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT:
      return "float32";
    case ACL_FLOAT16:
      return "float16";
    case ACL_INT8:
      return "int8";
    case ACL_INT32:
      return "int32";
    case ACL_UINT8:
      return "uint8";
    case ACL_INT16:
      return "int16";
    case ACL_UINT16:
      return "uint16";
    case ACL_UINT32:
      return "uint32";
    case ACL_INT64:
      return "int64";
    case ACL_UINT64:
      return "uint64";
    case ACL_DOUBLE:
      return "float64";
    case ACL_BOOL:
      return "bool";
    case ACL_STRING:
      return "string";
    case ACL_COMPLEX64:
      return "complex64";
    case ACL_COMPLEX128:
      return "complex128";
    case ACL_BF16:
      return "bfloat16";
    case ACL_INT4:
      return "int4";
    case ACL_UINT1:
      return "uint1";
    case ACL_COMPLEX32:
      return "complex32";
    case ACL_HIFLOAT8:
      return "hifloat8";
    case ACL_FLOAT8_E5M2:
      return "float8_e5m2";
    case ACL_FLOAT8_E4M3FN:
      return "float8_e4m3fn";
    case ACL_FLOAT8_E8M0:
      return "float8_e8m0";
    case ACL_FLOAT6_E3M2:
      return "float6_e3m2";
    case ACL_FLOAT6_E2M3:
      return "float6_e2m3";
    case ACL_FLOAT4_E2M1:
      return "float4_e2m1";
    case ACL_FLOAT4_E1M2:
      return "float4_e1m2";
    case ACL_DT_UNDEFINED:
      break;
  }
  return "undefined";
}

const char* format_name(aclFormat format) {
  switch (format) {
    case ACL_FORMAT_NCHW:
      return "NCHW";
    case ACL_FORMAT_NHWC:
      return "NHWC";
    case ACL_FORMAT_ND:
      return "ND";
    case ACL_FORMAT_NC1HWC0:
      return "NC1HWC0";
    case ACL_FORMAT_FRACTAL_Z:
      return "FRACTAL_Z";
    case ACL_FORMAT_NC1HWC0_C04:
      return "NC1HWC0_C04";
    case ACL_FORMAT_HWCN:
      return "HWCN";
    case ACL_FORMAT_NDHWC:
      return "NDHWC";
    case ACL_FORMAT_FRACTAL_NZ:
      return "FRACTAL_NZ";
    case ACL_FORMAT_NCDHW:
      return "NCDHW";
    case ACL_FORMAT_NDC1HWC0:
      return "NDC1HWC0";
    case ACL_FRACTAL_Z_3D:
      return "FRACTAL_Z_3D";
    case ACL_FORMAT_NC:
      return "NC";
    case ACL_FORMAT_NCL:
      return "NCL";
    case ACL_FORMAT_FRACTAL_NZ_C0_16:
      return "FRACTAL_NZ_C0_16";
    case ACL_FORMAT_FRACTAL_NZ_C0_32:
      return "FRACTAL_NZ_C0_32";
    case ACL_FORMAT_UNDEFINED:
      break;
  }
  return "UNDEFINED";
}

bool known_dtype(aclDataType dtype) {
  return dtype == ACL_DT_UNDEFINED || std::strcmp(dtype_name(dtype), "undefined") != 0;
}

bool known_format(aclFormat format) {
  return format == ACL_FORMAT_UNDEFINED || std::strcmp(format_name(format), "UNDEFINED") != 0;
}

std::string describe_tensor(aclDataType dtype, const int64_t* dims, int ndim, aclFormat format) {
  std::string text = dtype_name(dtype);
  text += '[';
  for (int i = 0; i < ndim; ++i) text += (i ? "," : "") + std::to_string(dims[i]);
  return text + "] " + format_name(format);
}

}  // namespace acl_sim
