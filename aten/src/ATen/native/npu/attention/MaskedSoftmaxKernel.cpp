// npu_scaled_masked_softmax and its gradient, made of upstream's operators, so that autograd, fake tensors and tracing
// take them.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

constexpr double kHidden = -10000.0;  // the score of what the mask hides: a row that is hidden wholly stays finite

void check_masked(const char* name, const Tensor& x, const Tensor& mask, bool fixed_triu_mask) {
  check_floating(name, x);
  TORCH_CHECK(mask.scalar_type() == kBool, name, ": the mask holds bools, but its dtype is ", mask.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(!fixed_triu_mask, name, ": fixed_triu_mask=True is not supported");
}

}  // namespace

Tensor npu_scaled_masked_softmax(const Tensor& x, const Tensor& mask, const Scalar& scale, bool fixed_triu_mask) {
  check_masked("npu_scaled_masked_softmax", x, mask, fixed_triu_mask);
  const Tensor scores = (x.to(wide_type(x)) * scale).masked_fill(mask, kHidden);
  return at::softmax(scores, -1).to(x.scalar_type());
}

Tensor npu_scaled_masked_softmax_backward(const Tensor& y_grad, const Tensor& y, const Tensor& mask,
                                          const Scalar& scale, bool fixed_triu_mask) {
  check_masked("npu_scaled_masked_softmax_backward", y, mask, fixed_triu_mask);
  const Tensor result = y.to(wide_type(y)), grad = y_grad.to(wide_type(y)) * result;
  const Tensor scores = grad - result * grad.sum(-1, true);
  return (scores * scale).masked_fill(mask, 0).to(y.scalar_type());
}

}  // namespace at::native::npu
