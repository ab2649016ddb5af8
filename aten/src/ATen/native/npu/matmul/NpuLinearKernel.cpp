// npu's own spellings of matrix products, made of differentiable operators.

#include <ATen/ATen.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

Tensor npu_linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  return at::linear(input, weight, bias);
}

std::tuple<Tensor, Tensor> npu_linear_backward(const Tensor& grad, const Tensor& input, const Tensor& weight) {
  const Tensor rows = grad.reshape({-1, grad.size(-1)});
  return {at::matmul(grad, weight), at::mm(rows.t(), input.reshape({-1, input.size(-1)}))};
}

// Batch dimensions that `output_sizes` has not are summed: the gradient of a broadcast operand.
Tensor npu_bmmV2(const Tensor& self, const Tensor& mat2, IntArrayRef output_sizes) {
  const Tensor product = at::matmul(self, mat2);
  return output_sizes.empty() || product.sizes() == output_sizes ? product : product.sum_to_size(output_sizes);
}

}  // namespace at::native::npu
