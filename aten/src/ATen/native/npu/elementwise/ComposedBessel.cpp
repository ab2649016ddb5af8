// Bessel functions: by their power series near zero, and else by the integral of K, whose integrand decays like a
// Gaussian function, so that a sum over few equidistant points has converged:
//   K0(z) e^z = integral over v > 0 of 2 exp(-v^2) / sqrt(2 z + v^2),   K1: with (1 + v^2 / z) as a factor.
// On the imaginary axis the same integral gives J and Y: K0(-ix) is i pi / 2 times J0(x) + i Y0(x).

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/inference/Composed.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace at::native::npu::composed {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Distance and number of the points: beyond the last the integrand is less than fp64 resolves.
constexpr double kStep = 0.3;
constexpr int kPoints = 22;
double weight(int i) { return (i == 0 ? 1. : 2.) * kStep * std::exp(-(i * kStep) * (i * kStep)); }

Tensor sum_of_powers(const Tensor& t, const std::vector<double>& coefficients) {
  Tensor y = at::full_like(t, coefficients.back());
  for (size_t k = coefficients.size() - 1; k > 0; --k) y = y * t + coefficients[k - 1];
  return y;
}

// Coefficients of (x / 2)^2k. `sign` is 1 for I and K, -1 for J and Y; those of the second kind have the sums of
// reciprocals that stand beside the logarithm.
std::vector<double> series(int order, double sign, bool second) {
  constexpr int kTerms = 21;
  std::vector<double> found;
  double factor = 1, sum = order == 0 ? -2 * std::numbers::egamma : 1 - 2 * std::numbers::egamma;
  for (int k = 0; k < kTerms; ++k) {
    if (k > 0) {
      factor *= sign / (k * static_cast<double>(k + order));
      sum += 1. / k + 1. / (k + order);
    }
    found.push_back(second ? factor * sum : factor);
  }
  return found;
}

Tensor of_first_kind(const Tensor& x, int order, double sign) {
  const Tensor y = sum_of_powers(at::square(x * 0.5), series(order, sign, /*second=*/false));
  return order == 0 ? y : y * x * 0.5;
}

Tensor sums_of_second_kind(const Tensor& x, int order, double sign) {
  const Tensor y = sum_of_powers(at::square(x * 0.5), series(order, sign, /*second=*/true));
  return order == 0 ? y : y * x * 0.5;
}

// ---- K ----

Tensor scaled_k_of_small(const Tensor& x, int order) {
  const Tensor product = at::log(x * 0.5) * of_first_kind(x, order, 1);
  const Tensor sums = sums_of_second_kind(x, order, 1) * 0.5;
  return (order == 0 ? sums - product : x.reciprocal() + product - sums) * at::exp(x);
}

Tensor scaled_k_of_large(const Tensor& x, int order) {
  Tensor sum = at::zeros_like(x);
  for (int i = 0; i < kPoints; ++i) {
    const double square = i * kStep * i * kStep;
    Tensor value = at::rsqrt(x * 2 + square);
    if (order == 1) value = value * (x.reciprocal() * square + 1);
    sum = sum + value * weight(i);
  }
  return sum;
}

// ---- J and Y ----

struct Waves {
  Tensor j, y;
};

Waves of_small(const Tensor& x, int order) {
  const Tensor j = of_first_kind(x, order, -1);
  const Tensor sums = at::log(x * 0.5) * j * 2 - sums_of_second_kind(x, order, -1);
  return {j, (order == 0 ? sums : sums - x.reciprocal() * 2) * (1 / std::numbers::pi)};
}

// The integrand's real and imaginary parts, by the half of the angle of v^2 - 2ix.
Waves of_large(const Tensor& x, int order) {
  Tensor a = at::zeros_like(x), b = at::zeros_like(x);
  const Tensor twice = x * 2;
  for (int i = 0; i < kPoints; ++i) {
    const double square = i * kStep * i * kStep;
    const Tensor size = at::sqrt(at::square(twice) + square * square), cosine = at::reciprocal(size) * square;
    const Tensor scale = at::rsqrt(size) * weight(i);
    const Tensor re = at::sqrt((1 + cosine) * 0.5) * scale, im = at::sqrt((1 - cosine) * 0.5) * scale;
    const Tensor slope = x.reciprocal() * (order == 1 ? square : 0);
    a = a + (re - im * slope);
    b = b + (im + re * slope);
  }
  const Tensor sine = at::sin(x), cosine = at::cos(x);
  const Tensor along = (a * sine + b * cosine) * (2 / std::numbers::pi),
               across = (a * cosine - b * sine) * (2 / std::numbers::pi);
  return order == 0 ? Waves{along, across.neg()} : Waves{across.neg(), along.neg()};
}

// By two ways, each on the side of `limit` where it serves: the arguments of the other side are replaced.
template <class Small, class Large>
Tensor either(const Tensor& x, double limit, const Small& small, const Large& large) {
  const Tensor near = x.le(limit), bound = at::full_like(x, limit);
  return at::where(near, small(at::where(near, x, bound)), large(at::where(near, bound, x)));
}

// Of functions with a pole at zero that have no value to its left.
Tensor with_pole(const Tensor& y, const Tensor& x, double pole) {
  return at::where(x.lt(0), at::full_like(y, kNan), at::where(x.eq(0), at::full_like(y, pole), y));
}

constexpr double kWavesLimit = 5, kDecayLimit = 2;

// Upstream's J and Y are off by up to 4e-7 between 5 and 12. These sums are not, but who computes in fp64 compares more
// digits than that, and gets the same ones everywhere.
void leave_doubles_to_the_cpu(const char* ir, ScalarType compute) {
  if (compute == kDouble) throw MissingOperator(ir);
}

Tensor scaled_k(const Tensor& x, int order) {
  const Tensor y = either(
      x, kDecayLimit, [=](const Tensor& t) { return scaled_k_of_small(t, order); },
      [=](const Tensor& t) { return scaled_k_of_large(t, order); });
  return with_pole(y, x, kInfinity);
}

}  // namespace

Tensor bessel_j(int64_t order, const Tensor& self, ScalarType compute) {
  leave_doubles_to_the_cpu(order == 0 ? "BesselJ0" : "BesselJ1", compute);
  const Tensor x = wide(self, compute);
  const int n = static_cast<int>(order);
  const Tensor y = either(
      x.abs(), kWavesLimit, [=](const Tensor& t) { return of_small(t, n).j; },
      [=](const Tensor& t) { return of_large(t, n).j; });
  return n == 0 ? y : at::where(x.lt(0), y.neg(), y);
}

Tensor bessel_y(int64_t order, const Tensor& self, ScalarType compute) {
  leave_doubles_to_the_cpu(order == 0 ? "BesselY0" : "BesselY1", compute);
  const Tensor x = wide(self, compute);
  const int n = static_cast<int>(order);
  const Tensor y = either(
      x, kWavesLimit, [=](const Tensor& t) { return of_small(t, n).y; },
      [=](const Tensor& t) { return of_large(t, n).y; });
  return with_pole(y, x, -kInfinity);
}

Tensor bessel_k(int64_t order, bool scaled, const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute), y = scaled_k(x, static_cast<int>(order));
  return scaled ? y : y * at::exp(x.neg());
}

Tensor spherical_bessel_j0(const Tensor& self, ScalarType compute) {
  const Tensor x = wide(self, compute), near = x.abs().lt(0.5);
  // Coefficients of x^2k: those of the sine.
  const Tensor small = sum_of_powers(at::square(at::where(near, x, at::zeros_like(x))),
                                     {1., -1. / 6, 1. / 120, -1. / 5040, 1. / 362880, -1. / 39916800, 1. / 6227020800});
  const Tensor y = at::where(near, small, at::sin(x) / x);
  return at::where(x.abs().eq(kInfinity), at::zeros_like(y), y);
}

}  // namespace at::native::npu::composed
