// Distributions that no operator of a card draws, made of uniform and normal numbers by rejection: Marsaglia and
// Tsang's method for gamma (2000), Hoermann's PTRS for Poisson (1993) and BTRS for binomial (1993), and direct counting
// where few events are expected. The host waits until every element was accepted.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>

#include <limits>
#include <utility>

namespace at::native::npu {
namespace {

// From so many expected events on the rejection methods hold.
constexpr double kMany = 10;

class Draws {
 public:
  Draws(const AtenArguments& a, const Tensor& like) : options_(like.options()), sizes_(like.sizes().vec()) {
    if (!a["generator"].isNone()) generator_ = a["generator"].toGenerator();
  }
  Tensor uniform() const { return at::rand(sizes_, generator_, options_); }
  Tensor normal() const { return at::randn(sizes_, generator_, options_); }

  // `propose` gives candidates and which of them hold; the others are drawn again. What is no number stays so.
  template <class Propose>
  Tensor until_accepted(Tensor open, Propose&& propose) const {
    Tensor result = at::zeros(sizes_, options_);
    while (open.any().item<bool>()) {
      const auto [candidate, holds] = propose();
      const Tensor taken = open.logical_and(holds.logical_or(candidate.isnan()));
      result = at::where(taken, candidate, result);
      open = open.logical_and(taken.logical_not());
    }
    return result;
  }

 private:
  TensorOptions options_;
  std::vector<int64_t> sizes_;
  std::optional<Generator> generator_;
};

double smallest(ScalarType type) {
  return type == kDouble ? std::numeric_limits<double>::min() : static_cast<double>(std::numeric_limits<float>::min());
}

Tensor gamma(const Tensor& alpha, const AtenArguments& a) {
  const Draws draws(a, alpha);
  // Below 1 a draw of alpha + 1 is made smaller.
  const Tensor low = alpha.lt(1), d = at::where(low, alpha + 1, alpha) - 1. / 3, c = at::rsqrt(d * 9);
  const Tensor y = draws.until_accepted(at::ones_like(alpha, kBool), [&] {
    const Tensor x = draws.normal(), root = x * c + 1, v = root * root * root;
    const Tensor holds = at::log(draws.uniform()).lt(x * x * 0.5 + d - d * v + d * at::log(v));
    return std::pair(d * v, root.gt(0).logical_and(holds));
  });
  const Tensor boost = at::pow(1 - draws.uniform(), alpha.reciprocal());
  return at::where(low, y * boost, y).clamp_min(smallest(alpha.scalar_type()));
}

// Of Hoermann's methods: a point below the hat, as a number of events, and what its acceptance looks at.
struct Point {
  Point(const Draws& draws, const Tensor& a, const Tensor& b, const Tensor& middle) {
    const Tensor u = draws.uniform() - 0.5;
    v = draws.uniform();
    us = 0.5 - u.abs();
    k = at::floor((a * 2 / us + b) * u + middle);
  }
  Tensor v, us, k;
};

Tensor poisson_of_few(const Draws& draws, const Tensor& rate, const Tensor& few) {
  const Tensor end = at::exp(-rate);
  Tensor count = at::zeros_like(rate), product = draws.uniform();
  for (Tensor open = few.logical_and(product.gt(end)); open.any().item<bool>();
       open = few.logical_and(product.gt(end))) {
    count = count + open.to(count.scalar_type());
    product = product * draws.uniform();
  }
  return count;
}

Tensor poisson_of_many(const Draws& draws, const Tensor& rate, const Tensor& many) {
  const Tensor b = at::sqrt(rate) * 2.53 + 0.931, a = b * 0.02483 - 0.059;
  const Tensor inverse = (b - 3.4).reciprocal() * 1.1328 + 1.1239, vr = 0.9277 - (b - 2).reciprocal() * 3.6224;
  return draws.until_accepted(many, [&] {
    const Point p(draws, a, b, rate + 0.43);
    const Tensor at_once = p.us.ge(0.07).logical_and(p.v.le(vr));
    const Tensor out = p.k.lt(0).logical_or(p.us.lt(0.013).logical_and(p.v.gt(p.us)));
    const Tensor below =
        at::log(p.v * inverse / (a / (p.us * p.us) + b)).le(p.k * at::log(rate) - rate - at::lgamma(p.k + 1));
    return std::pair(p.k, at_once.logical_or(out.logical_not().logical_and(below)));
  });
}

// p is at most a half.
Tensor binomial_of_few(const Draws& draws, const Tensor& n, const Tensor& p, const Tensor& few) {
  // The distance from one event to the next.
  const Tensor scale = at::log1p(-p).reciprocal();
  const auto step = [&] { return at::ceil(at::log(1 - draws.uniform()) * scale).clamp_min(1); };
  Tensor count = at::zeros_like(n), sum = step();
  for (Tensor open = few.logical_and(sum.le(n)); open.any().item<bool>(); open = few.logical_and(sum.le(n))) {
    count = count + open.to(count.scalar_type());
    sum = sum + step();
  }
  return count;
}

Tensor binomial_of_many(const Draws& draws, const Tensor& n, const Tensor& p, const Tensor& many) {
  const Tensor spread = at::sqrt(n * p * (1 - p)), b = spread * 2.53 + 1.15, a = b * 0.0248 + p * 0.01 - 0.0873;
  const Tensor vr = 0.92 - b.reciprocal() * 4.2, alpha = (b.reciprocal() * 5.1 + 2.83) * spread;
  const Tensor m = at::floor((n + 1) * p), odds = at::log(p / (1 - p));
  const Tensor most = at::lgamma(m + 1) + at::lgamma(n - m + 1);
  return draws.until_accepted(many, [&] {
    const Point q(draws, a, b, n * p + 0.5);
    const Tensor at_once = q.us.ge(0.07).logical_and(q.v.le(vr));
    const Tensor inside = q.k.ge(0).logical_and(q.k.le(n));
    const Tensor bound = most - at::lgamma(q.k + 1) - at::lgamma(n - q.k + 1) + (q.k - m) * odds;
    const Tensor below = at::log(q.v * alpha / (a / (q.us * q.us) + b)).le(bound);
    return std::pair(q.k, inside.logical_and(at_once.logical_or(below)));
  });
}

}  // namespace

std::vector<Tensor> composed_standard_gamma(const AtenArguments& a) {
  const Tensor& alpha = a.tensor("self");
  return {gamma(wide(alpha, alpha.scalar_type()), a)};
}

std::vector<Tensor> composed_sample_dirichlet(const AtenArguments& a) {
  const Tensor& alpha = a.tensor("self");
  const Tensor parts = gamma(wide(alpha, alpha.scalar_type()), a);
  return {(parts / parts.sum(-1, /*keepdim=*/true)).clamp_min(smallest(parts.scalar_type()))};
}

std::vector<Tensor> composed_poisson(const AtenArguments& a) {
  // Counts need more digits than a float32 has.
  const Tensor rate = a.tensor("self").to(kDouble);
  TORCH_CHECK(rate.ge(0).all().item<bool>(), "invalid Poisson rate, expected rate to be non-negative");
  const Draws draws(a, rate);
  const Tensor many = rate.ge(kMany);
  return {poisson_of_few(draws, rate, many.logical_not()) + poisson_of_many(draws, rate, many)};
}

std::vector<Tensor> composed_binomial(const AtenArguments& a) {
  const Tensor n = at::floor(a.tensor("count").to(kDouble)), given = a.tensor("prob").to(kDouble).expand_as(n);
  const Draws draws(a, n);
  const Tensor turned = given.gt(0.5), p = at::where(turned, 1 - given, given);
  const Tensor some = n.gt(0).logical_and(p.gt(0)), many = some.logical_and((n * p).ge(kMany));
  const Tensor count =
      binomial_of_few(draws, n, p, some.logical_and(many.logical_not())) + binomial_of_many(draws, n, p, many);
  const Tensor events = at::where(turned, n.clamp_min(0) - count, count);
  // What is no number stays so.
  return {at::where(n.isnan().logical_or(given.isnan()), n + given, events)};
}

}  // namespace at::native::npu
