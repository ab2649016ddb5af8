// Norms, rotary embedding, gated activations and the loss of large models, with their gradients as operators: made of
// upstream's operators, so that autograd, fake tensors and tracing take them as they are. Half precision is computed in
// fp32 and rounded once, as the device does it.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/npu/CustomNew.h>
#include <NPUCustomFunctions.h>

#include <string>

namespace at::native::npu {
namespace {

ScalarType wide_type(const Tensor& t) { return t.scalar_type() == kDouble ? kDouble : kFloat; }

void check_floating(const char* name, const Tensor& t) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(t.scalar_type()) && t.element_size() > 1, '"', name,
                              "\" not implemented for '", toString(t.scalar_type()), "'");
}

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

struct Halves {
  Tensor left, right;
};
Halves halves(const char* name, const Tensor& self, int64_t dim) {
  check_floating(name, self);
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.dim() > 0 && self.size(axis) % 2 == 0, name, ": dimension ", dim,
              " must be even to be halved, but the shape is ", self.sizes());
  const int64_t half = self.size(axis) / 2;
  const Tensor wide = self.to(wide_type(self));
  return {wide.narrow(axis, 0, half), wide.narrow(axis, half, half)};
}

// (x1, x2) -> (-x2, x1), where x1 and x2 are the halves of the last dimension or its even and odd elements.
Tensor quarter_turn(const Tensor& x, bool interleaved) {
  const int64_t half = x.size(-1) / 2;
  if (interleaved) {
    const Tensor pairs = x.unflatten(-1, {half, 2});
    return at::stack({-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2);
  }
  return at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
}

bool check_rotary(const char* name, const Tensor& self, const Tensor& r1, const Tensor& r2, std::string_view mode) {
  check_floating(name, self);
  TORCH_CHECK(mode == "half" || mode == "interleave", name, ": rotary_mode is 'half' or 'interleave', got '", mode,
              "'");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4, name, ": three or four dimensions expected, but self is ",
              self.sizes());
  TORCH_CHECK(self.size(-1) % 2 == 0, name, ": the last dimension must be even, but self is ", self.sizes());
  TORCH_CHECK(r1.sizes() == r2.sizes() && r1.dim() == self.dim() && at::is_expandable_to(r1.sizes(), self.sizes()),
              name, ": r1 and r2 must be of one shape that broadcasts to that of self, but self is ", self.sizes(),
              ", r1 is ", r1.sizes(), " and r2 is ", r2.sizes());
  return mode == "interleave";
}

int64_t reduction_of(const char* name, std::string_view reduction) {
  if (reduction == "none") return at::Reduction::None;
  if (reduction == "mean") return at::Reduction::Mean;
  TORCH_CHECK(reduction == "sum", name, ": reduction is 'none', 'mean' or 'sum', got '", reduction, "'");
  return at::Reduction::Sum;
}

void check_cross_entropy(const char* name, const Tensor& input, const Tensor& target, double zloss_scale,
                         bool return_zloss) {
  check_floating(name, input);
  TORCH_CHECK(input.dim() == 2 && target.dim() == 1 && input.size(0) == target.size(0), name,
              ": input of shape (n, classes) and target of shape (n) expected, got ", input.sizes(), " and ",
              target.sizes());
  TORCH_CHECK(zloss_scale == 0 && !return_zloss, name,
              ": the z-loss (lse_square_scale_for_zloss, return_zloss) is not supported");
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

Tensor npu_rotary_mul(const Tensor& self, const Tensor& r1, const Tensor& r2, std::string_view rotary_mode,
                      const std::optional<Tensor>& rotate) {
  const NoAutocast guard;
  const bool interleaved = check_rotary("npu_rotary_mul", self, r1, r2, rotary_mode);
  const ScalarType wide = wide_type(self);
  const Tensor x = self.to(wide);
  Tensor turned;
  if (rotate.has_value() && rotate->defined()) {
    TORCH_CHECK(rotate->dim() == 2 && rotate->size(0) == self.size(-1) && rotate->size(1) == self.size(-1),
                "npu_rotary_mul: rotate must be a square matrix of the size of the last dimension of self, but self is ",
                self.sizes(), " and rotate is ", rotate->sizes());
    turned = at::matmul(x, rotate->to(wide));
  } else {
    turned = quarter_turn(x, interleaved);
  }
  return (x * r1.to(wide) + turned * r2.to(wide)).to(self.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> npu_rotary_mul_backward(const Tensor& grad, const Tensor& self, const Tensor& r1,
                                                           const Tensor& r2, std::string_view rotary_mode) {
  const bool interleaved = check_rotary("npu_rotary_mul_backward", self, r1, r2, rotary_mode);
  TORCH_CHECK(grad.sizes() == self.sizes(), "npu_rotary_mul_backward: grad must have the shape of self, ",
              self.sizes(), ", but is ", grad.sizes());
  const ScalarType wide = wide_type(self);
  const Tensor dy = grad.to(wide), x = self.to(wide);
  // The quarter turn's transpose is the turn back.
  const Tensor dx = dy * r1.to(wide) - quarter_turn(dy * r2.to(wide), interleaved);
  const Tensor dr1 = (dy * x).sum_to_size(r1.sizes()), dr2 = (dy * quarter_turn(x, interleaved)).sum_to_size(r2.sizes());
  return {dx.to(self.scalar_type()), dr1.to(r1.scalar_type()), dr2.to(r2.scalar_type())};
}

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

std::tuple<Tensor, Tensor, Tensor, Tensor> npu_cross_entropy_loss(
    const Tensor& input, const Tensor& target, const std::optional<Tensor>& weight, std::string_view reduction,
    int64_t ignore_index, double label_smoothing, double lse_square_scale_for_zloss, bool return_zloss) {
  const char* name = "npu_cross_entropy_loss";
  check_cross_entropy(name, input, target, lse_square_scale_for_zloss, return_zloss);
  const int64_t kind = reduction_of(name, reduction);
  const ScalarType wide = wide_type(input);
  const Tensor x = input.to(wide);
  std::optional<Tensor> scaling;
  if (weight.has_value() && weight->defined()) scaling = weight->to(wide);
  Tensor loss = at::cross_entropy_loss(x, target, scaling, kind, ignore_index, label_smoothing);
  if (kind != at::Reduction::None) loss = loss.view({1});
  const Tensor none = at::empty({0}, input.options());
  return {loss.to(input.scalar_type()), at::log_softmax(x.detach(), 1).to(input.scalar_type()), none, none.clone()};
}

// With y the target: loss = (1 - s) * -w[y] * log p[y] + s / classes * sum over c of -w[c] * log p[c].
Tensor npu_cross_entropy_loss_backward(const Tensor& grad_loss, const Tensor& log_prob, const Tensor& target,
                                       const std::optional<Tensor>& weight, const std::optional<Tensor>& grad_zloss,
                                       const std::optional<Tensor>& /*lse_for_zloss*/, std::string_view reduction,
                                       int64_t ignore_index, double label_smoothing,
                                       double lse_square_scale_for_zloss) {
  const char* name = "npu_cross_entropy_loss_backward";
  check_cross_entropy(name, log_prob, target, lse_square_scale_for_zloss,
                      grad_zloss.has_value() && grad_zloss->defined());
  const int64_t kind = reduction_of(name, reduction), classes = log_prob.size(1);
  const ScalarType wide = wide_type(log_prob);
  const Tensor logs = log_prob.to(wide);
  const Tensor counted = target.ne(ignore_index);
  const Tensor labels = at::where(counted, target, 0);
  const Tensor scaling = weight.has_value() && weight->defined() ? weight->to(wide) : at::ones({classes}, logs.options());
  const Tensor of_label = scaling.index_select(0, labels) * counted;
  Tensor grad = grad_loss.to(wide);
  if (kind == at::Reduction::Mean) grad = grad / of_label.sum();
  const Tensor rows = (kind == at::Reduction::None ? grad : grad.expand({log_prob.size(0)})) * counted;
  Tensor by_log = at::zeros_like(logs).scatter(1, labels.unsqueeze(1), (of_label * (label_smoothing - 1)).unsqueeze(1));
  if (label_smoothing > 0) by_log = by_log - scaling * (label_smoothing / static_cast<double>(classes));
  by_log = by_log * rows.unsqueeze(1);
  return (by_log - logs.exp() * by_log.sum(1, true)).to(log_prob.scalar_type());
}

}  // namespace at::native::npu
