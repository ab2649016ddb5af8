// npu's own casts.

#include <ATen/ATen.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

Tensor npu_dtype_cast(const Tensor& self, ScalarType dtype, std::optional<int64_t> input_dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(!input_dtype.has_value() || *input_dtype == static_cast<int64_t>(self.scalar_type()),
                              "npu_dtype_cast: input_dtype stands for a dtype that torch has not; self is ",
                              self.scalar_type(), " and input_dtype is ", input_dtype.value_or(0));
  return self.to(dtype, /*non_blocking=*/false, true);
}
Tensor& npu_dtype_cast_(Tensor& self, const Tensor& src) { return self.copy_(src); }

}  // namespace at::native::npu
