// Activations with numbers that no attribute of fp32 holds, element by element.

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>

#include <limits>

namespace at::native::npu::composed {
namespace {

Tensor zero_where(const Tensor& condition, const Tensor& otherwise) {
  return at::where(condition, at::zeros_like(otherwise), otherwise);
}

}  // namespace

Tensor elu(const Tensor& self, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale) {
  const Tensor below = at::expm1(self * input_scale) * (alpha.toDouble() * scale.toDouble());
  return at::where(self.gt(0), self * scale, below);
}

Tensor elu_backward(const Tensor& grad, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale,
                    bool is_result, const Tensor& self_or_result) {
  const double slope = alpha.toDouble() * scale.toDouble();
  const Tensor below = is_result ? grad * input_scale * (self_or_result + slope)
                                 : grad * (input_scale.toDouble() * slope) * at::exp(self_or_result * input_scale);
  return at::where(self_or_result.le(0), below, grad * scale);
}

Tensor leaky_relu(const Tensor& self, const Scalar& slope) { return at::where(self.gt(0), self, self * slope); }

Tensor leaky_relu_backward(const Tensor& grad, const Tensor& self, const Scalar& slope) {
  return at::where(self.gt(0), grad, grad * slope);
}

Tensor softplus(const Tensor& self, const Scalar& beta, const Scalar& threshold) {
  const Tensor scaled = self * beta;
  return at::where(scaled.gt(threshold), self, at::log1p(at::exp(scaled)) / beta);
}

Tensor softplus_backward(const Tensor& grad, const Tensor& self, const Scalar& beta, const Scalar& threshold) {
  const Tensor scaled = self * beta, z = at::exp(scaled);
  return at::where(scaled.gt(threshold), grad, grad * z / (z + 1));
}

Tensor hardshrink(const Tensor& self, const Scalar& lambd) { return shrink_backward(self, self, lambd); }

Tensor softshrink(const Tensor& self, const Scalar& lambd) {
  return at::where(self.gt(lambd), self - lambd, at::where(self.lt(-lambd), self + lambd, self * 0));
}

Tensor shrink_backward(const Tensor& grad, const Tensor& self, const Scalar& lambd) {
  return zero_where(at::logical_and(self.ge(-lambd), self.le(lambd)), grad);
}

Tensor hardtanh_backward(const Tensor& grad, const Tensor& self, const Scalar& min, const Scalar& max) {
  return zero_where(at::logical_or(self.le(min), self.ge(max)), grad);
}

Tensor threshold_backward(const Tensor& grad, const Tensor& self, const Scalar& threshold) {
  return zero_where(self.le(threshold), grad);
}

Tensor logit_backward(const Tensor& grad, const Tensor& self, std::optional<double> eps) {
  const Tensor slope = grad / (self * (1 - self));
  if (eps.has_value() && *eps >= 0) return zero_where(at::logical_or(self.lt(*eps), self.gt(1 - *eps)), slope);
  const Tensor outside = at::logical_or(self.lt(0), self.gt(1));
  return at::where(outside, at::full_like(slope, std::numeric_limits<double>::quiet_NaN()), slope);
}

}  // namespace at::native::npu::composed
