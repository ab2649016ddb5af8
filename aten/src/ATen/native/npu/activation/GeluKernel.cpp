// npu_gelu, npu_gelu_mul, npu_fast_gelu and gradients, made of upstream's operators, so that autograd, fake tensors and
// tracing take them.

#include <ATen/ATen.h>
#include <ATen/native/npu/activation/Halves.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

constexpr double kSteepness = 1.702;  // of the sigmoid that stands for the normal distribution

void check_approximate(const char* name, std::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh", name, ": approximate is 'none' or 'tanh', got '",
              approximate, "'");
}

void check_grad(const char* name, const Tensor& grad, const Tensor& self) {
  check_floating(name, self);
  TORCH_CHECK(grad.sizes() == self.sizes(), name, ": the gradient must have the shape of self, ", self.sizes(),
              ", but is ", grad.sizes());
}

}  // namespace

Tensor npu_gelu(const Tensor& self, std::string_view approximate) {
  check_approximate("npu_gelu", approximate);
  return at::gelu(self, approximate);
}

Tensor npu_gelu_backward(const Tensor& grad_output, const Tensor& self, std::string_view approximate) {
  check_approximate("npu_gelu_backward", approximate);
  check_grad("npu_gelu_backward", grad_output, self);
  return at::gelu_backward(grad_output, self, approximate);
}

Tensor npu_gelu_mul(const Tensor& input, std::string_view approximate) {
  check_approximate("npu_gelu_mul", approximate);
  const auto [left, right] = halves("npu_gelu_mul", input, -1);
  return (at::gelu(left, approximate) * right).to(input.scalar_type());
}

Tensor npu_fast_gelu(const Tensor& self) {
  check_floating("npu_fast_gelu", self);
  const Tensor x = self.to(wide_type(self));
  return (x * at::sigmoid(x * kSteepness)).to(self.scalar_type());
}

Tensor npu_fast_gelu_backward(const Tensor& grad, const Tensor& self) {
  check_grad("npu_fast_gelu_backward", grad, self);
  const Tensor x = self.to(wide_type(self)), share = at::sigmoid(x * kSteepness);
  return (grad.to(x.scalar_type()) * (share + x * share * (1 - share) * kSteepness)).to(self.scalar_type());
}

}  // namespace at::native::npu
