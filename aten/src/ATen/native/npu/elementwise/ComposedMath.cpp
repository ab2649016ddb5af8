// Element-wise functions that no card has an operator for, of operators that it has.

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/inference/Composed.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace at::native::npu::composed {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// 1 / sqrt(pi) / (x + 1/2 / (x + 1 / (x + 3/2 / ...))), which has converged for x >= 2
Tensor erfcx_of_large(const Tensor& x) {
  const int terms = x.scalar_type() == kDouble ? 80 : 30;
  Tensor denominator = x;
  for (int k = terms; k > 0; --k) denominator = at::add(x, at::reciprocal(denominator), k / 2.);
  return at::reciprocal(denominator).mul(1 / std::sqrt(std::numbers::pi));
}

}  // namespace

Tensor exp2(const Tensor& self, ScalarType compute) {
  if (isComplexType(compute)) return at::exp(wide(self, compute) * std::numbers::ln2);
  return at::pow(Scalar(2), wide(self, compute));
}

// Reflected to positive numbers, moved by the recurrence to where the asymptotic series serves.
Tensor digamma(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute);
  const Tensor negative = x.lt(0);
  const Tensor distance = x - x.round();  // the tangent's period is 1 here, and this difference is exact
  const Tensor reflected =
      at::where(negative, at::tan(distance * std::numbers::pi).reciprocal().mul(-std::numbers::pi), at::zeros_like(x));
  Tensor y = at::where(negative, 1 - x, x);
  Tensor sum = reflected;
  for (int i = 0; i < 10; ++i) {
    const Tensor small = y.lt(10);
    sum = at::where(small, sum - y.reciprocal(), sum);
    y = at::where(small, y + 1, y);
  }
  constexpr std::array<double, 7> kSeries{
      8.33333333333333333333E-2, -2.10927960927960927961E-2, 7.57575757575757575758E-3, -4.16666666666666666667E-3,
      3.96825396825396825397E-3, -8.33333333333333333333E-3, 8.33333333333333333333E-2};
  const Tensor z = at::square(y).reciprocal();
  Tensor series = at::full_like(y, kSeries[0]);
  for (size_t i = 1; i < kSeries.size(); ++i) series = series * z + kSeries[i];
  Tensor result = at::log(y) - 0.5 * y.reciprocal() - series * z + sum;
  result = at::where(at::logical_and(negative, distance.eq(0)), at::full_like(x, kNan), result);
  return at::where(x.eq(0), x.reciprocal().neg(), result);
}

namespace {

Tensor trigamma(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute);
  const Tensor left = x.lt(0.5);
  const Tensor reflected =
      at::square(at::sin(x * std::numbers::pi)).reciprocal() * (std::numbers::pi * std::numbers::pi);
  Tensor y = at::where(left, 1 - x, x);
  Tensor sum = at::where(left, -reflected, at::zeros_like(x));
  for (int i = 0; i < 6; ++i) {
    sum = sum + at::square(y).reciprocal();
    y = y + 1;
  }
  const Tensor z = at::square(y).reciprocal();
  const Tensor series = z * (1. / 6 - z * (1. / 30 - z * (1. / 42)));
  sum = sum + (y.reciprocal() * 0.5 + 1 + series) / y;
  return at::where(left, -sum, sum);
}

}  // namespace

Tensor polygamma(int64_t n, const Tensor& self, ScalarType compute) {
  if (n == 0) return digamma(self, compute);
  if (n == 1) return trigamma(self, compute);
  const double factor = (n % 2 != 0 ? 1. : -1.) * std::exp(std::lgamma(static_cast<double>(n) + 1));
  return at::special_zeta(Scalar(static_cast<double>(n + 1)), wide(self, compute)) * factor;
}

// The scaled function times the exponential, in two steps, so that it overflows where the product does.
Tensor i0(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute), half = at::exp(x.abs() * 0.5);
  return at::special_i0e(x) * half * half;
}

Tensor i1(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute), half = at::exp(x.abs() * 0.5);
  return at::special_i1e(x) * half * half;
}

Tensor entr(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute);
  const Tensor outside = at::where(x.lt(0), at::full_like(x, -kInfinity), x);  // 0 and NaN stay
  return at::where(x.gt(0), -x * at::log(x), outside);
}

Tensor erfcx(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute);
  const Tensor large = x.ge(2);
  const Tensor near = at::where(large, at::zeros_like(x), x);
  const Tensor far = at::where(large, x, at::full_like(x, 2));
  return at::where(large, erfcx_of_large(far), at::exp(at::square(near)) * at::erfc(near));
}

Tensor log_ndtr(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute);
  const Tensor left = at::where(x.lt(-1), x, at::full_like(x, -1));
  const Tensor tail =
      at::log(erfcx(left * (-1 / std::numbers::sqrt2), left.scalar_type()) * 0.5) - at::square(left) * 0.5;
  return at::where(x.lt(-1), tail, at::log1p(at::erfc(x * (1 / std::numbers::sqrt2)) * -0.5));
}

Tensor sgn(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute);
  if (!x.is_complex()) return at::sign(x);
  const Tensor size = at::abs(x);
  return at::where(size.eq(0), at::zeros_like(x), x / size);
}

Tensor frac(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute);
  return x - x.trunc();
}

Tensor nan_to_num(const Tensor& self, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf, ScalarType compute) {
  if (isIntegralType(compute, /*includeBool=*/true)) return self.clone();
  if (self.is_complex()) {
    const Tensor parts = at::view_as_real(self.resolve_conj());
    return at::view_as_complex(nan_to_num(parts, nan, posinf, neginf, parts.scalar_type()).contiguous());
  }
  const Tensor x = self.to(compute);
  const double largest = compute == kDouble ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  const Tensor numbers = at::where(x.isnan(), at::full_like(x, nan.value_or(0)), x);
  const Tensor below = at::where(x.eq(kInfinity), at::full_like(x, posinf.value_or(largest)), numbers);
  return at::where(x.eq(-kInfinity), at::full_like(x, neginf.value_or(-largest)), below);
}

Tensor logit(const Tensor& self, std::optional<double> eps, ScalarType compute) {
  Tensor x = wide(self, compute);
  if (eps.has_value() && *eps >= 0) x = at::clamp(x, *eps, 1 - *eps);
  return at::log(x / (1 - x));
}

Tensor fmax(const Tensor& self, const Tensor& other, ScalarType compute) {
  const Tensor a = self.to(compute), b = other.to(compute);
  if (!isFloatingType(compute)) return at::maximum(a, b);
  return at::where(a.isnan(), b, at::where(b.isnan(), a, at::maximum(a, b)));
}

Tensor fmin(const Tensor& self, const Tensor& other, ScalarType compute) {
  const Tensor a = self.to(compute), b = other.to(compute);
  if (!isFloatingType(compute)) return at::minimum(a, b);
  return at::where(a.isnan(), b, at::where(b.isnan(), a, at::minimum(a, b)));
}

// Of numbers divided by the larger one, whose squares do not overflow.
Tensor hypot(const Tensor& self, const Tensor& other, ScalarType compute) {
  const Tensor a = wide(self, compute).abs(), b = wide(other, compute).abs();
  const Tensor large = at::maximum(a, b), small = at::minimum(a, b);
  const Tensor ratio = small / large;
  const Tensor finite = at::where(large.eq(0), large, large * at::sqrt(at::square(ratio) + 1));
  const Tensor infinite = at::logical_or(a.eq(kInfinity), b.eq(kInfinity));
  return at::where(infinite, at::full_like(finite, kInfinity), finite);
}

Tensor copysign(const Tensor& self, const Tensor& other, ScalarType compute) {
  const Tensor a = wide(self, compute).abs();
  return at::where(at::signbit(other), a.neg(), a);
}

Tensor logaddexp2(const Tensor& self, const Tensor& other, ScalarType compute) {
  const Tensor a = wide(self, compute), b = wide(other, compute);
  const Tensor sum = at::maximum(a, b) + at::log1p(at::pow(Scalar(2), (a - b).abs().neg())) * (1 / std::numbers::ln2);
  return at::where(at::logical_and(a.eq(b), a.abs().eq(kInfinity)), a, sum);
}

Tensor lcm(const Tensor& self, const Tensor& other, ScalarType compute) {
  const Tensor a = self.to(compute), b = other.to(compute);
  const Tensor divisor = at::gcd(a, b);
  const Tensor none = divisor.eq(0);
  const Tensor whole = at::div(a, at::where(none, at::ones_like(divisor), divisor), "trunc");
  return at::where(none, divisor, (whole * b).abs());
}

Tensor logical_xor(const Tensor& self, const Tensor& other) { return at::ne(self.ne(0), other.ne(0)); }

// By the logarithm, which may be off by one; twice as wide, so that every power of two is a number.
std::tuple<Tensor, Tensor> frexp(const Tensor& self) {
  const Tensor x = self.to(kDouble), size = x.abs();
  const Tensor plain = at::logical_or(size.eq(0), at::logical_not(at::isfinite(x)));
  const Tensor tiny = size.lt(1e-290);
  const Tensor scaled = at::where(plain, at::ones_like(x), at::where(tiny, x * 0x1p200, x));
  Tensor power = at::floor(at::log2(scaled.abs())) + 1;
  Tensor half = at::floor(power * 0.5);
  Tensor fraction = scaled * at::pow(Scalar(2.), -half) * at::pow(Scalar(2.), half - power);
  const Tensor above = fraction.abs().ge(1), below = fraction.abs().lt(0.5);
  fraction = at::where(above, fraction * 0.5, at::where(below, fraction * 2, fraction));
  power = power + above.to(kDouble) - below.to(kDouble) - tiny.to(kDouble) * 200;
  return {at::where(plain, x, fraction).to(self.scalar_type()),
          at::where(plain, at::zeros_like(power), power).to(kInt)};
}

Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base, ScalarType compute, Device device) {
  const Tensor powers = at::linspace(start, end, steps, TensorOptions().dtype(compute).device(device));
  return at::pow(Scalar(base), powers);
}

// By angles within [-1, 1], by hyperbolic ones outside, where the sign of a negative argument goes before the function
// of the positive one, which for V is W and the other way round.
Tensor chebyshev(Chebyshev kind, const Tensor& x, const Tensor& n, bool shifted, ScalarType compute) {
  const Tensor u = shifted ? wide(x, compute) * 2 - 1 : wide(x, compute);
  const Tensor degree = at::trunc(wide(n, compute));
  const Tensor size = u.abs();
  const Tensor angle = at::acos(at::clamp(u, -1, 1)), growth = at::acosh(at::clamp(size, 1));
  const Tensor sign =
      at::where(at::logical_and(u.lt(0), at::remainder(degree, 2).eq(1)), at::full_like(u, -1), at::ones_like(u));
  const auto ratio = [](const Tensor& above, const Tensor& below) { return above / below; };
  const auto hyperbolic = [&](Chebyshev which) {
    const Tensor half = degree + 0.5;
    if (which == Chebyshev::T) return at::cosh(degree * growth);
    if (which == Chebyshev::U) return ratio(at::sinh((degree + 1) * growth), at::sinh(growth));
    if (which == Chebyshev::V) return ratio(at::cosh(half * growth), at::cosh(growth * 0.5));
    return ratio(at::sinh(half * growth), at::sinh(growth * 0.5));
  };
  const Tensor half = degree + 0.5, one = at::ones_like(degree), twice = degree * 2 + 1;
  Tensor within, at_one, at_minus_one, outside;
  switch (kind) {
    case Chebyshev::T:
      within = at::cos(degree * angle), at_one = one, at_minus_one = one, outside = hyperbolic(Chebyshev::T);
      break;
    case Chebyshev::U:
      within = ratio(at::sin((degree + 1) * angle), at::sin(angle)), at_one = degree + 1, at_minus_one = degree + 1;
      outside = hyperbolic(Chebyshev::U);
      break;
    case Chebyshev::V:
      within = ratio(at::cos(half * angle), at::cos(angle * 0.5)), at_one = one, at_minus_one = twice;
      outside = at::where(u.gt(0), hyperbolic(Chebyshev::V), hyperbolic(Chebyshev::W));
      break;
    case Chebyshev::W:
      within = ratio(at::sin(half * angle), at::sin(angle * 0.5)), at_one = twice, at_minus_one = one;
      outside = at::where(u.gt(0), hyperbolic(Chebyshev::W), hyperbolic(Chebyshev::V));
      break;
  }
  Tensor y = at::where(size.le(1), within, outside * sign);
  y = at::where(u.eq(1), at_one, at::where(u.eq(-1), at_minus_one * sign, y));
  y = at::where(u.isnan(), u, y);
  y = at::where(degree.eq(0), at::ones_like(y), y);
  return at::where(degree.lt(0), at::zeros_like(y), y);
}

}  // namespace at::native::npu::composed
