// Reflections and exponentials of matrices, by operators that a card has.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>
#include <ATen/native/npu/linalg/Matrices.h>

#include <cmath>

namespace at::native::npu {
namespace {

// Reflects the columns of a matrix in place: t - tau v (v^H t). Sums are the vector unit's, which keeps fp32.
void reflect(const Tensor& t, const Tensor& v, const Tensor& tau) {
  if (t.numel() > 0) t.sub_(v * (tau * (v.conj().resolve_conj() * t).sum(-2, /*keepdim=*/true)));
}

// The vector of a reflection: a one, then what stands below the diagonal.
Tensor vector_of(const Tensor& reflectors, int64_t j) {
  const Tensor below = reflectors.narrow(-1, j, 1).narrow(-2, j + 1, reflectors.size(-2) - j - 1);
  return at::cat({at::ones(with_tail(reflectors, {1, 1}), reflectors.options()), below}, -2);
}

Tensor factor_of(const Tensor& tau, int64_t j) { return tau.narrow(-1, j, 1).unsqueeze(-1); }

Tensor square_of(const Tensor& t) {
  return t.is_complex() ? at::square(at::real(t)) + at::square(at::imag(t)) : at::square(t);
}

// Q or its adjoint, times a matrix.
Tensor multiply(const Tensor& reflectors, const Tensor& tau, const Tensor& other, bool adjoint) {
  const Tensor result = other.clone(MemoryFormat::Contiguous);
  const int64_t count = tau.size(-1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t j = adjoint ? i : count - 1 - i;
    const Tensor factor = factor_of(tau, j);
    reflect(result.narrow(-2, j, result.size(-2) - j), vector_of(reflectors, j),
            adjoint ? factor.conj().resolve_conj() : factor);
  }
  return result;
}

}  // namespace

std::vector<Tensor> composed_geqrf(const AtenArguments& a) {
  const Tensor r = a.tensor("self").clone(MemoryFormat::Contiguous);
  const int64_t m = r.size(-2), n = r.size(-1), k = std::min(m, n);
  check_columns("Geqrf", k);
  std::vector<Tensor> factors;
  for (int64_t j = 0; r.numel() > 0 && j < k; ++j) {
    const Tensor rows = r.narrow(-2, j, m - j), column = rows.narrow(-1, j, 1);
    const Tensor first = column.narrow(-2, 0, 1), below = column.narrow(-2, 1, m - j - 1);
    const Tensor alpha = first.clone(), along = alpha.is_complex() ? at::real(alpha) : alpha;
    Tensor off = square_of(below).sum(-2, /*keepdim=*/true);
    if (alpha.is_complex()) off = off + at::square(at::imag(alpha));
    const Tensor none = off.eq(0), length = at::sqrt(off + at::square(along));
    const Tensor beta = at::where(along.ge(0), length.neg(), length);
    const Tensor divisor = at::where(none, at::ones_like(alpha), alpha - beta);
    below.copy_(below / divisor);
    first.copy_(at::where(none, alpha, beta.to(alpha.scalar_type())));
    const Tensor tau = at::where(none, at::zeros_like(alpha), (beta - alpha) / beta);
    factors.push_back(tau.squeeze(-1));
    if (j + 1 < n) reflect(rows.narrow(-1, j + 1, n - j - 1), vector_of(r, j), tau.conj().resolve_conj());
  }
  return {r, factors.empty() ? at::zeros(with_tail(r, {k}), r.options()) : at::cat(factors, -1)};
}

std::vector<Tensor> composed_householder_product(const AtenArguments& a) {
  const Tensor &reflectors = a.tensor("input"), &tau = a.tensor("tau");
  const int64_t m = reflectors.size(-2), n = reflectors.size(-1);
  check_columns("HouseholderProduct", tau.size(-1));
  const Tensor unit = at::eye(m, n, reflectors.options()).expand(reflectors.sizes());
  return {reflectors.numel() == 0 ? reflectors.clone() : multiply(reflectors, tau, unit, /*adjoint=*/false)};
}

std::vector<Tensor> composed_ormqr(const AtenArguments& a) {
  const Tensor &reflectors = a.tensor("self"), &tau = a.tensor("input2"), &other = a.tensor("input3");
  const bool left = a["left"].toBool(), adjoint = a["transpose"].toBool();
  check_columns("Ormqr", tau.size(-1));
  if (other.numel() == 0) return {other.clone()};
  if (left) return {multiply(reflectors, tau, other, adjoint)};
  return {turned(multiply(reflectors, tau, turned(other), !adjoint))};
}

// By the series of a matrix that is small after halvings, which squarings undo.
std::vector<Tensor> composed_matrix_exp(const AtenArguments& a) {
  const Tensor x = wide(a.tensor("self"), a.tensor("self").scalar_type());
  const int64_t n = x.size(-1);
  if (x.numel() == 0) return {x.clone()};
  const ScalarType real = c10::toRealValueType(x.scalar_type());
  const Tensor norm = x.abs().sum(-2).amax(-1).to(real);
  const Tensor halvings = at::ceil(at::log2(norm)).clamp_min(0).unsqueeze(-1).unsqueeze(-1);
  const double most = halvings.amax().item<double>();
  const Tensor small = x * at::pow(Scalar(2.), halvings.neg());
  const Tensor unit = at::eye(n, x.options());
  const int terms = real == kDouble ? 18 : 12;
  Tensor y = unit + small / terms;
  for (int k = terms - 1; k > 0; --k) y = unit + at::matmul(small, y) / k;
  // An infinite or unknown norm leaves an unknown result.
  for (int k = 0; std::isfinite(most) && k < most; ++k) y = at::where(halvings.gt(k), at::matmul(y, y), y);
  return {y};
}

}  // namespace at::native::npu
