// npu_rms_norm and its gradient, made of upstream's operators, so that autograd, fake tensors and tracing take them.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

// The last dimensions of self, which gamma has the shape of.
DimVector normalised_dims(const char* name, const Tensor& self, const Tensor& gamma) {
  check_floating(name, self);
  const int64_t rank = gamma.dim();
  TORCH_CHECK(rank >= 1 && rank <= self.dim() && self.sizes().slice(self.dim() - rank) == gamma.sizes(), name,
              ": gamma must have the shape of the last dimensions of self, but self is ", self.sizes(),
              " and gamma is ", gamma.sizes());
  DimVector dims(rank);
  for (int64_t i = 0; i < rank; ++i) dims[i] = self.dim() - rank + i;
  return dims;
}

}  // namespace

std::tuple<Tensor, Tensor> npu_rms_norm(const Tensor& self, const Tensor& gamma, double epsilon) {
  const DimVector dims = normalised_dims("npu_rms_norm", self, gamma);
  const ScalarType wide = wide_type(self);
  const Tensor x = self.to(wide);
  const Tensor rstd = (x.square().mean(dims, true) + epsilon).rsqrt();
  return {(x * rstd * gamma.to(wide)).to(self.scalar_type()), rstd.detach()};
}

std::tuple<Tensor, Tensor> npu_rms_norm_backward(const Tensor& dy, const Tensor& self, const Tensor& gamma,
                                                 const Tensor& rstd) {
  const DimVector dims = normalised_dims("npu_rms_norm_backward", self, gamma);
  TORCH_CHECK(dy.sizes() == self.sizes(), "npu_rms_norm_backward: dy must have the shape of self, ", self.sizes(),
              ", but is ", dy.sizes());
  const ScalarType wide = wide_type(self);
  const Tensor normal = self.to(wide) * rstd.to(wide), grad = dy.to(wide);
  const Tensor scaled = grad * gamma.to(wide);
  const Tensor dx = (scaled - normal * (scaled * normal).mean(dims, true)) * rstd.to(wide);
  return {dx.to(self.scalar_type()), (grad * normal).sum_to_size(gamma.sizes()).to(gamma.scalar_type())};
}

}  // namespace at::native::npu
