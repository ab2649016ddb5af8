// Distances between rows, by differences of all pairs.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>

#include <cmath>
#include <limits>

namespace at::native::npu {
namespace {

// The norm over the last dimension.
Tensor norm(const Tensor& difference, double p) {
  const Tensor size = difference.abs();
  if (difference.size(-1) == 0) return size.sum(-1);
  if (p == 0) return size.ne(0).to(size.scalar_type()).sum(-1);
  if (p == 1) return size.sum(-1);
  if (p == 2) return at::sqrt(at::square(size).sum(-1));
  if (std::isinf(p)) return size.amax(-1);
  return size.pow(p).sum(-1).pow(1 / p);
}

// By each component of the difference, for gradients of the norms.
Tensor norm_backward(const Tensor& grad, const Tensor& difference, const Tensor& norms, double p) {
  const Tensor size = difference.abs(), sign = at::sign(difference);
  const Tensor g = grad.unsqueeze(-1), d = norms.unsqueeze(-1);
  if (p == 0) return at::zeros_like(difference);
  if (p == 1) return sign * g;
  if (std::isinf(p)) return sign * g * size.eq(d).to(size.scalar_type());
  const Tensor slope = p == 2 ? difference * g / d : sign * size.pow(p - 1) * g / d.pow(p - 1);
  Tensor none = d.eq(0).expand_as(slope);
  if (p < 1) none = at::logical_or(none, size.eq(0));
  return at::where(none, at::zeros_like(slope), slope);
}

Tensor differences(const Tensor& x1, const Tensor& x2) { return x1.unsqueeze(-2) - x2.unsqueeze(-3); }

}  // namespace

std::vector<Tensor> composed_cdist_forward(const AtenArguments& a) {
  const Tensor &x1 = a.tensor("x1"), &x2 = a.tensor("x2");
  return {norm(differences(wide(x1, x1.scalar_type()), wide(x2, x2.scalar_type())), a["p"].toDouble())};
}

std::vector<Tensor> composed_cdist_backward(const AtenArguments& a) {
  const Tensor &x1 = a.tensor("x1"), &x2 = a.tensor("x2");
  if (x1.numel() == 0 || x2.numel() == 0) return {at::zeros_like(x1)};
  // Of all batches, as upstream announces it: autograd adds up what was broadcast.
  return {norm_backward(a.tensor("grad"), differences(x1, x2), a.tensor("cdist"), a["p"].toDouble()).sum(-2)};
}

std::vector<Tensor> composed_pdist_forward(const AtenArguments& a) {
  const Tensor& x = a.tensor("self");
  const Tensor pairs = at::triu_indices(x.size(0), x.size(0), 1, x.options().dtype(kLong));
  return {norm(x.index_select(0, pairs.select(0, 0)) - x.index_select(0, pairs.select(0, 1)), a["p"].toDouble())};
}

std::vector<Tensor> composed_pdist_backward(const AtenArguments& a) {
  const Tensor& x = a.tensor("self");
  const Tensor pairs = at::triu_indices(x.size(0), x.size(0), 1, x.options().dtype(kLong));
  const Tensor first = pairs.select(0, 0), second = pairs.select(0, 1);
  const Tensor difference = x.index_select(0, first) - x.index_select(0, second);
  const Tensor by_pair = norm_backward(a.tensor("grad"), difference, a.tensor("pdist"), a["p"].toDouble());
  return {at::zeros_like(x).index_add(0, first, by_pair).index_add(0, second, by_pair, -1)};
}

// The gradient finds the largest difference again by comparing with the distance, which halves have rounded: distance
// and gradient are both computed in float32 then.
bool finds_maximum_in_halves(const AtenArguments& a) {
  return isReducedFloatingType(a.tensor("grad").scalar_type()) && std::isinf(a["p"].toDouble());
}

std::optional<std::vector<Tensor>> cdist_backward_of_halves(const AtenArguments& a) {
  if (!finds_maximum_in_halves(a)) return std::nullopt;
  const double p = a["p"].toDouble();
  const Tensor x1 = a.tensor("x1").to(kFloat), x2 = a.tensor("x2").to(kFloat);
  const Tensor distance = at::_cdist_forward(x1, x2, p, std::nullopt);
  return std::vector<Tensor>{at::_cdist_backward(a.tensor("grad").to(kFloat), x1, x2, p, distance)};
}

std::optional<std::vector<Tensor>> pdist_backward_of_halves(const AtenArguments& a) {
  if (!finds_maximum_in_halves(a)) return std::nullopt;
  const double p = a["p"].toDouble();
  const Tensor x = a.tensor("self").to(kFloat);
  return std::vector<Tensor>{at::_pdist_backward(a.tensor("grad").to(kFloat), x, p, at::_pdist_forward(x, p))};
}

}  // namespace at::native::npu
