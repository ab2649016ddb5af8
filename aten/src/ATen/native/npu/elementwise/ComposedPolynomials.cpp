// Orthogonal polynomials by their recurrences: each degree from the two before it, for all elements at once.

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/inference/Composed.h>

namespace at::native::npu::composed {
namespace {

const char* ir_of(Polynomial kind) {
  switch (kind) {
    case Polynomial::HermiteH:
      return "HermitePolynomialH";
    case Polynomial::HermiteHe:
      return "HermitePolynomialHe";
    case Polynomial::LaguerreL:
      return "LaguerrePolynomialL";
    case Polynomial::LegendreP:
      return "LegendrePolynomialP";
  }
  TORCH_CHECK(false, "no such polynomial");
}

Tensor of_degree_one(Polynomial kind, const Tensor& x) {
  if (kind == Polynomial::HermiteH) return x * 2;
  return kind == Polynomial::LaguerreL ? 1 - x : x;
}

// That of degree k + 1.
Tensor next(Polynomial kind, const Tensor& x, const Tensor& now, const Tensor& before, int64_t k) {
  switch (kind) {
    case Polynomial::HermiteH:
      return x * now * 2 - before * (2 * k);
    case Polynomial::HermiteHe:
      return x * now - before * k;
    case Polynomial::LaguerreL:
      return ((2 * k + 1 - x) * now - before * k) / (k + 1);
    case Polynomial::LegendreP:
      return (x * now * (2 * k + 1) - before * k) / (k + 1);
  }
  TORCH_CHECK(false, "no such polynomial");
}

}  // namespace

Tensor polynomial(Polynomial kind, const Tensor& self, const Tensor& n, ScalarType compute) {
  const Tensor x = wide(self, compute), degree = at::trunc(wide(n, compute));
  // More degrees than these are for the CPU, which stops at each element's own.
  constexpr double kMost = 64;
  const double most = degree.max().item<double>();
  if (!(most <= kMost)) throw MissingOperator(ir_of(kind));
  Tensor before = at::ones_like(x), now = of_degree_one(kind, x);
  Tensor y = at::where(degree.eq(0), before, at::zeros_like(x));  // none is of a negative degree
  for (int64_t k = 1; k <= most; ++k) {
    y = at::where(degree.eq(k), now, y);
    if (k < most) std::tie(before, now) = std::make_tuple(now, next(kind, x, now, before, k));
  }
  return y;
}

}  // namespace at::native::npu::composed
