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

}  // namespace at::native::npu::composed
