// Pooling operators that no entry of the operator table makes.

#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

// The functional form has another name, so the table knows no group of the two.
Tensor& adaptive_avg_pool3d_backward_out(const Tensor& grad_output, const Tensor& self, Tensor& grad_input) {
  return give(at::_adaptive_avg_pool3d_backward(grad_output, self), grad_input);
}

}  // namespace at::native::npu
