// What is said of data types that ACL has no match for, or an operator no kernel.

#include <ATen/native/npu/frame/inference/Dtype.h>

namespace at::native::npu::detail {

void throw_no_dtype(ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu has no data type for ", toString(type));
}

void throw_not_implemented(ScalarType type, const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, '"', name, "\" not implemented for '", toString(type), "'");
}

}  // namespace at::native::npu::detail
