// npu's own casts.

#include <ATen/ATen.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

Tensor npu_dtype_cast(const Tensor& self, ScalarType dtype) { return self.to(dtype, /*non_blocking=*/false, true); }
Tensor& npu_dtype_cast_(Tensor& self, const Tensor& src) { return self.copy_(src); }

}  // namespace at::native::npu
