// npu_cross_entropy_loss and its gradient, made of upstream's operators, so that autograd, fake tensors and tracing
// take them.

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

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
  const Tensor scaling =
      weight.has_value() && weight->defined() ? weight->to(wide) : at::ones({classes}, logs.options());
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
