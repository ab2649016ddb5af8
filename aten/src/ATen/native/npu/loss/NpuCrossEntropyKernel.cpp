// npu's own cross entropy, made of differentiable operators.

#include <ATen/ATen.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

Tensor npu_softmax_cross_entropy_with_logits(const Tensor& self, const Tensor& labels) {
  TORCH_CHECK(self.dim() == 2 && self.sizes() == labels.sizes(),
              "npu_softmax_cross_entropy_with_logits: logits and labels of one shape (batch, classes) expected, got ",
              self.sizes(), " and ", labels.sizes());
  return -(labels * at::log_softmax(self, -1)).sum(-1);
}

Tensor npu_softmax_cross_entropy_with_logits_backward(const Tensor& grad, const Tensor& self, const Tensor& labels) {
  return (at::softmax(self, -1) * labels.sum(-1, true) - labels) * grad.unsqueeze(-1);
}

}  // namespace at::native::npu
