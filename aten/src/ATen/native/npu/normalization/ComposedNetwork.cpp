// Layers, and quantisation-aware training, that upstream fuses and a card does not.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>

#include <limits>

namespace at::native::npu {
namespace {

// Sums over all dimensions but one, which stays in its place.
Tensor sum_but(const Tensor& t, int64_t dim) {
  DimVector others;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (d != dim) others.push_back(d);
  }
  return others.empty() ? t : t.sum(others, /*keepdim=*/true);
}

}  // namespace

std::vector<Tensor> composed_weight_norm(const AtenArguments& a) {
  const Tensor &v = a.tensor("v"), &g = a.tensor("g");
  const int64_t dim = at::maybe_wrap_dim(a["dim"].toInt(), v.dim());
  const Tensor x = wide(v, v.scalar_type()), norms = at::sqrt(sum_but(at::square(x), dim));
  return {x * (g / norms), norms.to(wide_type(g.scalar_type()))};
}

std::vector<Tensor> composed_weight_norm_backward(const AtenArguments& a) {
  const Tensor &v = a.tensor("saved_v"), &g = a.tensor("saved_g"), &norms = a.tensor("saved_norms");
  const int64_t dim = at::maybe_wrap_dim(a["dim"].toInt(), v.dim());
  const Tensor grad = wide(a.tensor("grad_w"), v.scalar_type()), x = wide(v, v.scalar_type());
  const Tensor product = sum_but(grad * x, dim);
  return {(grad - x * product / at::square(norms)) * (g / norms), product / norms};
}

std::vector<Tensor> composed_masked_softmax(const AtenArguments& a) {
  const Tensor &self = a.tensor("self"), &mask = a.tensor("mask");
  const auto dim = a["dim"].isNone() ? self.dim() - 1 : a["dim"].toInt();
  const auto type = a["mask_type"].isNone() ? 2 : a["mask_type"].toInt();
  // 0: (L, L) of the source, 1: (B, L) of padding, 2: as the scores.
  const Tensor hidden = type == 0   ? mask.expand(self.sizes())
                        : type == 1 ? mask.reshape({self.size(0), 1, 1, self.size(-1)}).expand(self.sizes())
                                    : mask;
  const Tensor x = wide(self, self.scalar_type());
  const Tensor shown = at::where(hidden, at::full({}, -std::numeric_limits<double>::infinity(), x.options()), x);
  return {at::softmax(shown, dim)};
}

std::vector<Tensor> composed_masked_softmax_backward(const AtenArguments& a) {
  const Tensor &grad = a.tensor("grad_output"), &output = a.tensor("output"), &mask = a.tensor("mask");
  const auto dim = a["dim"].isNone() ? output.dim() - 1 : a["dim"].toInt();
  const Tensor zero = at::zeros({}, grad.options());
  const Tensor g = at::where(mask, zero, grad);
  const Tensor slope = output * (g - (g * output).sum(dim, /*keepdim=*/true));
  return {at::where(mask, zero, slope)};
}

std::vector<Tensor> composed_glu_jvp(const AtenArguments& a) {
  const Tensor &glu = a.tensor("glu"), &x = a.tensor("x"), &dx = a.tensor("dx");
  const auto dim = a["dim"].toInt();
  const auto halves = x.chunk(2, dim), changes = dx.chunk(2, dim);
  const Tensor gate = at::sigmoid(halves[1]);
  return {changes[0] * gate + glu * (changes[1] - gate * changes[1])};
}

std::vector<Tensor> composed_add_relu(const AtenArguments& a) {
  return {at::relu(at::add(a.tensor("self"), a.tensor("other"), a["alpha"].toScalar()))};
}
std::vector<Tensor> composed_add_relu_of_scalar(const AtenArguments& a) {
  return {at::relu(at::add(a.tensor("self"), a["other"].toScalar(), a["alpha"].toScalar()))};
}
std::vector<Tensor> composed_add_relu_(const AtenArguments& a) {
  a.tensor("self").copy_(composed_add_relu(a)[0]);
  return {};
}
std::vector<Tensor> composed_add_relu_of_scalar_(const AtenArguments& a) {
  a.tensor("self").copy_(composed_add_relu_of_scalar(a)[0]);
  return {};
}

std::vector<Tensor> composed_linear_combination(const AtenArguments& a) {
  const Tensor &input = a.tensor("input"), &coefficients = a.tensor("coefficients");
  const Tensor rows = input.reshape({input.size(0), -1});
  DimVector sizes(input.sizes());
  sizes[0] = coefficients.size(0);
  return {at::matmul(coefficients.to(rows.scalar_type()), rows).reshape(sizes)};
}

}  // namespace at::native::npu
