// Data types that ACL has no match for.

#include <ATen/native/npu/frame/Dtype.h>

namespace at::native::npu::detail {

void throw_no_dtype(ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu has no data type for ", toString(type));
}

}  // namespace at::native::npu::detail
