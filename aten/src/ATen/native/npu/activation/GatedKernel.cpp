// npu_swiglu, npu_geglu and their gradients, made of upstream's operators, so that autograd, fake tensors and tracing
// take them.

#include <ATen/ATen.h>
#include <ATen/native/npu/activation/Halves.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

Tensor npu_swiglu(const Tensor& self, int64_t dim) {
  const auto [left, right] = halves("npu_swiglu", self, dim);
  return (at::silu(left) * right).to(self.scalar_type());
}

Tensor npu_swiglu_backward(const Tensor& grad_output, const Tensor& self, int64_t dim) {
  const auto [left, right] = halves("npu_swiglu_backward", self, dim);
  TORCH_CHECK(grad_output.sizes() == left.sizes(), "npu_swiglu_backward: grad_output must have the shape ",
              left.sizes(), ", but is ", grad_output.sizes());
  const Tensor grad = grad_output.to(left.scalar_type());
  return at::cat({at::silu_backward(grad * right, left), grad * at::silu(left)}, dim).to(self.scalar_type());
}

std::tuple<Tensor, Tensor> npu_geglu(const Tensor& self, int64_t dim, int64_t approximate, bool activate_left) {
  TORCH_CHECK(approximate == 0 || approximate == 1, "npu_geglu: approximate is 0 (erf) or 1 (tanh), got ", approximate);
  const auto [left, right] = halves("npu_geglu", self, dim);
  const Tensor gelu = at::gelu(activate_left ? left : right, approximate == 1 ? "tanh" : "none");
  return {(gelu * (activate_left ? right : left)).to(self.scalar_type()), gelu.detach().to(self.scalar_type())};
}

Tensor npu_geglu_grad(const Tensor& grad_output, const Tensor& self, const Tensor& gelu, int64_t dim,
                      int64_t approximate, bool activate_left) {
  TORCH_CHECK(approximate == 0 || approximate == 1, "npu_geglu_grad: approximate is 0 (erf) or 1 (tanh), got ",
              approximate);
  const auto [left, right] = halves("npu_geglu_grad", self, dim);
  TORCH_CHECK(grad_output.sizes() == left.sizes() && gelu.sizes() == left.sizes(),
              "npu_geglu_grad: grad_output and gelu must have the shape ", left.sizes(), ", but are ",
              grad_output.sizes(), " and ", gelu.sizes());
  const Tensor grad = grad_output.to(left.scalar_type()), factor = gelu.to(left.scalar_type()) * grad;
  const std::string_view tanh = approximate == 1 ? "tanh" : "none";
  const Tensor activated = at::gelu_backward(grad * (activate_left ? right : left), activate_left ? left : right, tanh);
  return at::cat(activate_left ? std::vector<Tensor>{activated, factor} : std::vector<Tensor>{factor, activated}, dim)
      .to(self.scalar_type());
}

}  // namespace at::native::npu
