// Losses that a card has no operator for.

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/inference/Composed.h>

namespace at::native::npu::composed {
namespace {

Tensor reduced(const Tensor& loss, int64_t reduction) {
  return reduction == Reduction::None ? loss : reduction == Reduction::Mean ? loss.mean() : loss.sum();
}

Tensor difference(const Tensor& self, const Tensor& target) {
  const ScalarType compute = at::result_type(self, target);
  return wide(self, compute) - wide(target, compute);
}

// A slope that stays the same beyond `limit`.
Tensor sloped(const Tensor& grad_output, const Tensor& x, int64_t reduction, double limit, double slope) {
  const Tensor direction = x.clamp(-limit, limit) * slope;
  const double share = reduction == Reduction::Mean ? 1. / static_cast<double>(x.numel()) : 1.;
  return direction * grad_output * share;
}

}  // namespace

Tensor smooth_l1_loss(const Tensor& self, const Tensor& target, int64_t reduction, double beta) {
  const Tensor size = difference(self, target).abs();
  const Tensor loss = at::where(size.lt(beta), at::square(size) * (0.5 / beta), size - 0.5 * beta);
  return reduced(loss, reduction).to(at::result_type(self, target));
}

Tensor smooth_l1_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t reduction,
                               double beta) {
  return sloped(grad_output, difference(self, target), reduction, beta, 1 / beta);
}

Tensor huber_loss(const Tensor& self, const Tensor& target, int64_t reduction, double delta) {
  const Tensor size = difference(self, target).abs();
  const Tensor loss = at::where(size.le(delta), at::square(size) * 0.5, (size - 0.5 * delta) * delta);
  return reduced(loss, reduction).to(self.scalar_type());
}

Tensor huber_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t reduction,
                           double delta) {
  return sloped(grad_output, difference(self, target), reduction, delta, 1);
}

namespace {

// Classes along the second dimension, samples along the first.
Tensor rows(const Tensor& t, int64_t classes) { return t.reshape({-1, classes}); }

int64_t classes_of(const Tensor& self) { return self.dim() == 0 ? 1 : self.size(-1); }

// By how much each class is too near to the target's, which itself is not.
Tensor excess(const Tensor& x, const Tensor& index, const Scalar& margin) {
  const Tensor z = (margin.toDouble() - x.gather(1, index)) + x;
  return at::where(z.gt(0), z, at::zeros_like(z)).scatter(1, index, 0);
}

Tensor weight_of(const Tensor& weight, const Tensor& index) {
  return weight.index_select(0, index.reshape({-1})).reshape(index.sizes());
}

// A gradient of samples, or of their sum, for rows.
Tensor grad_of_rows(const Tensor& grad_output) {
  return grad_output.dim() == 0 ? grad_output : grad_output.reshape({-1, 1});
}

}  // namespace

Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const Scalar& p, const Scalar& margin,
                         const std::optional<Tensor>& weight, int64_t reduction) {
  const int64_t classes = classes_of(self);
  const Tensor index = target.reshape({-1, 1}).to(kLong);
  Tensor loss = excess(rows(self, classes), index, margin);
  if (p.toLong() == 2) loss = at::square(loss);
  if (weight.has_value() && weight->defined()) loss = loss * weight_of(*weight, index);
  const Tensor of_samples = loss.sum(1) / classes;
  return reduction == Reduction::None ? of_samples.reshape(target.sizes()) : reduced(of_samples, reduction);
}

Tensor multi_margin_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, const Scalar& p,
                                  const Scalar& margin, const std::optional<Tensor>& weight, int64_t reduction) {
  const int64_t classes = classes_of(self);
  const Tensor x = rows(self, classes), index = target.reshape({-1, 1}).to(kLong);
  const Tensor over = excess(x, index, margin);
  Tensor slope = p.toLong() == 2 ? over * 2 : over.gt(0).to(x.scalar_type());
  if (weight.has_value() && weight->defined()) slope = slope * weight_of(*weight, index);
  const int64_t share = classes * (reduction == Reduction::Mean ? x.size(0) : 1);
  slope = slope.scatter(1, index, slope.sum(1, /*keepdim=*/true).neg()) / share;
  return (slope * grad_of_rows(grad_output)).reshape(self.sizes());
}

// Each target of a sample, up to the first that is negative, against each class that is none.
Tensor multilabel_margin_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                                       int64_t reduction, const Tensor& is_target) {
  const int64_t classes = classes_of(self);
  constexpr int64_t kMost = 512;  // the pairs of more classes are for the CPU
  if (classes > kMost) throw MissingOperator("MultilabelMarginLossGrad");
  const Tensor x = rows(self, classes), listed = rows(target, classes).to(kLong), index = listed.clamp_min(0);
  const Tensor counts = listed.ge(0).to(kInt).cumprod(1).ne(0).unsqueeze(2);
  const Tensor others = rows(is_target, classes).eq(0).unsqueeze(1);
  const Tensor near = (1 - x.gather(1, index)).unsqueeze(2).add(x.unsqueeze(1)).gt(0);
  const Tensor pairs = near.logical_and(counts).logical_and(others).to(x.scalar_type());
  const int64_t share = classes * (reduction == Reduction::Mean ? x.size(0) : 1);
  const Tensor slope = pairs.sum(1).scatter_add(1, index, pairs.sum(2).neg()) / share;
  return (slope * grad_of_rows(grad_output)).reshape(self.sizes());
}

}  // namespace at::native::npu::composed
