// npu's own spellings of activations, made of differentiable operators.

#include <ATen/ATen.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

Tensor npu_silu(const Tensor& self) { return at::silu(self); }
Tensor& npu_silu_(Tensor& self) { return at::silu_(self); }

Tensor npu_silu_backward(const Tensor& grad_output, const Tensor& x0, const Tensor& /*x1: silu(x0)*/) {
  return at::silu_backward(grad_output, x0);
}

Tensor npu_mish(const Tensor& self) { return at::mish(self); }
Tensor npu_mish_backward(const Tensor& grad, const Tensor& input) { return at::mish_backward(grad, input); }

}  // namespace at::native::npu
