// npu_rms_norm with its gradient and its variants, npu_deep_norm, and group norms with an activation, made of
// upstream's operators, so that autograd, fake tensors and tracing take them.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

// The last dimensions of self, which gamma has the shape of.
DimVector normalised_dims(const char* name, const Tensor& self, const Tensor& gamma) {
  check_floating(name, self);
  const int64_t rank = gamma.dim();
  TORCH_CHECK(rank >= 1 && rank <= self.dim() && self.sym_sizes().slice(self.dim() - rank) == gamma.sym_sizes(), name,
              ": gamma must have the shape of the last dimensions of self, but self is ", self.sizes(),
              " and gamma is ", gamma.sizes());
  DimVector dims(rank);
  for (int64_t i = 0; i < rank; ++i) dims[i] = self.dim() - rank + i;
  return dims;
}

void check_alike(const char* name, const Tensor& first, const Tensor& second) {
  TORCH_CHECK(first.sym_sizes() == second.sym_sizes(), name, ": the two summands must have one shape, but are ",
              first.sizes(), " and ", second.sizes());
}

struct GroupNorm {
  Tensor result;      // wide
  Tensor mean, rstd;  // (samples, groups)
};
GroupNorm group_norm_of(const char* name, const Tensor& input, const std::optional<Tensor>& weight,
                        const std::optional<Tensor>& bias, int64_t groups, double eps) {
  check_floating(name, input);
  TORCH_CHECK(input.dim() >= 2 && groups > 0 && input.size(1) % groups == 0, name, ": ", groups,
              " groups must divide dimension 1 of the input, whose shape is ", input.sizes());
  for (const std::optional<Tensor>* factor : {&weight, &bias}) {
    TORCH_CHECK(!given(*factor) || (*factor)->sizes() == IntArrayRef{input.size(1)}, name,
                ": weight and bias must have one dimension of ", input.size(1), " elements");
  }
  const ScalarType wide = wide_type(input);
  // The batch is left open, so that a trace holds for others; unless nothing would tell what it is.
  const c10::SymInt per_group = c10::multiply_integers(input.sym_sizes().slice(1)) / groups;
  const bool empty = per_group.sym_eq(0).guard_size_oblivious(__FILE__, __LINE__);
  const Tensor x = input.to(wide).reshape_symint({empty ? input.sym_size(0) : c10::SymInt(-1), groups, per_group});
  const auto [variance, mean] = at::var_mean(x, IntArrayRef{2}, /*correction=*/Scalar(0), /*keepdim=*/true);
  const Tensor rstd = (variance + eps).rsqrt();
  // As the input's, not as its numbers: what is traced holds for other sizes, too.
  Tensor y = ((x - mean) * rstd).view_as(input);
  DimVector shape(input.dim(), 1);
  shape[1] = input.size(1);
  if (given(weight)) y = y * weight->to(wide).view(shape);
  if (given(bias)) y = y + bias->to(wide).view(shape);
  const auto outer = [&](const Tensor& t) { return t.squeeze(2).detach().to(input.scalar_type()); };
  return {y, outer(mean), outer(rstd)};
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

std::tuple<Tensor, Tensor, Tensor> npu_add_rms_norm(const Tensor& x1, const Tensor& x2, const Tensor& gamma,
                                                    double epsilon) {
  check_alike("npu_add_rms_norm", x1, x2);
  const DimVector dims = normalised_dims("npu_add_rms_norm", x1, gamma);
  const ScalarType wide = wide_type(x1);
  const Tensor x = x1.to(wide) + x2.to(wide);
  const Tensor rstd = (x.square().mean(dims, true) + epsilon).rsqrt();
  return {(x * rstd * gamma.to(wide)).to(x1.scalar_type()), rstd.detach(), x.to(x1.scalar_type())};
}

std::tuple<Tensor, Tensor> npu_gemma_rms_norm(const Tensor& self, const Tensor& gamma, double epsilon) {
  const DimVector dims = normalised_dims("npu_gemma_rms_norm", self, gamma);
  const ScalarType wide = wide_type(self);
  const Tensor x = self.to(wide);
  const Tensor rstd = (x.square().mean(dims, true) + epsilon).rsqrt();
  return {(x * rstd * (gamma.to(wide) + 1)).to(self.scalar_type()), rstd.detach()};
}

std::tuple<Tensor, Tensor, Tensor> npu_deep_norm(const Tensor& x, const Tensor& gx, const Tensor& beta,
                                                 const Tensor& gamma, double alpha, double epsilon) {
  check_alike("npu_deep_norm", x, gx);
  const DimVector dims = normalised_dims("npu_deep_norm", x, gamma);
  TORCH_CHECK(beta.sym_sizes() == gamma.sym_sizes(), "npu_deep_norm: beta must have the shape of gamma, ",
              gamma.sizes(), ", but is ", beta.sizes());
  const ScalarType wide = wide_type(x);
  const Tensor sum = x.to(wide) * alpha + gx.to(wide);
  const auto [variance, mean] = at::var_mean(sum, dims, /*correction=*/Scalar(0), /*keepdim=*/true);
  const Tensor rstd = (variance + epsilon).rsqrt();
  const Tensor y = (sum - mean) * rstd * gamma.to(wide) + beta.to(wide);
  return {mean.detach(), rstd.detach(), y.to(x.scalar_type())};
}

std::tuple<Tensor, Tensor, Tensor> npu_group_norm_silu(const Tensor& input, const std::optional<Tensor>& weight,
                                                       const std::optional<Tensor>& bias, int64_t group, double eps) {
  const GroupNorm norm = group_norm_of("npu_group_norm_silu", input, weight, bias, group, eps);
  return {at::silu(norm.result).to(input.scalar_type()), norm.mean, norm.rstd};
}

std::tuple<Tensor, Tensor, Tensor> npu_group_norm_swish(const Tensor& input, int64_t num_groups, const Tensor& weight,
                                                        const Tensor& bias, std::optional<double> eps,
                                                        std::optional<double> swish_scale) {
  const GroupNorm norm = group_norm_of("npu_group_norm_swish", input, weight, bias, num_groups, eps.value_or(1e-5));
  const Tensor y = norm.result * at::sigmoid(norm.result * swish_scale.value_or(1.0));
  return {y.to(input.scalar_type()), norm.mean, norm.rstd};
}

}  // namespace at::native::npu
