// Stateless random numbers: every draw is a function of seed and offset (philox.h). The host's generator hands out
// offsets; two draws never share one.

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "ops/nn_util.h"
#include "ops/random/philox.h"

namespace acl_sim {
namespace {

constexpr int64_t kGrain = 1 << 14;  // blocks of four numbers per parallel piece

// Calls emit(i, w0, w1): two random words for each of n elements, two elements per block.
template <class Emit>
void for_words(uint64_t seed, uint64_t offset, int64_t n, const Emit& emit) {
  at::parallel_for(0, (n + 1) / 2, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const std::array<uint32_t, 4> w = philox_block(seed, offset, static_cast<uint64_t>(b));
      emit(2 * b, w[0], w[1]);
      if (2 * b + 1 < n) {
        emit(2 * b + 1, w[2], w[3]);
      }
    }
  });
}

struct Stream {
  uint64_t seed, offset;
};

Stream stream_of(OpContext& c, size_t seed_input, size_t offset_input) {
  const std::vector<int64_t> seed = c.in_values(seed_input), offset = c.in_values(offset_input);
  if (seed.empty() || offset.empty()) {
    refuse("seed and offset need a value each");
  }
  return {static_cast<uint64_t>(seed[0]), static_cast<uint64_t>(offset.back())};
}

// Fills `target` with value(w0, w1) of its element type T, or through fp32 for the half types.
template <class Value>
void fill(const at::Tensor& target, Stream s, const Value& value) {
  if (target.scalar_type() == at::kDouble) {
    double* p = target.mutable_data_ptr<double>();
    for_words(s.seed, s.offset, target.numel(), [&](int64_t i, uint32_t a, uint32_t b) { p[i] = value(a, b, true); });
    return;
  }
  const at::Tensor wide = target.scalar_type() == at::kFloat ? target : at::empty(target.sizes(), at::kFloat);
  float* p = wide.mutable_data_ptr<float>();
  for_words(s.seed, s.offset, target.numel(),
            [&](int64_t i, uint32_t a, uint32_t b) { p[i] = static_cast<float>(value(a, b, false)); });
  if (!wide.is_same(target)) {
    target.copy_(wide);
  }
}

// inputs shape, key, counter, alg; [0, 1)
void uniform(OpContext& c) {
  const at::Tensor y = c.out(0);
  const Stream s = stream_of(c, 1, 2);
  if (is_low_precision(y)) {
    // Rounded towards zero, so that 1 never appears.
    const double step = y.scalar_type() == at::kHalf ? 0x1p-11 : 0x1p-8;
    fill(y, s, [step](uint32_t a, uint32_t, bool) { return std::floor(unit_float(a) / step) * step; });
    return;
  }
  fill(y, s,
       [](uint32_t a, uint32_t b, bool wide) { return wide ? unit_double(a, b) : static_cast<double>(unit_float(a)); });
}

// inputs shape, key, counter, alg; mean 0, variance 1
void normal(OpContext& c) {
  fill(c.out(0), stream_of(c, 1, 2), [](uint32_t a, uint32_t b, bool) {
    const double u = (static_cast<double>(a) + 0.5) * 0x1p-32, v = static_cast<double>(b) * 0x1p-32;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  });
}

// inputs shape, prob (one value), seed, offset
void bernoulli(OpContext& c) {
  const at::Tensor y = c.out(0);
  const double p = c.in_scalar(1).toDouble();
  const Stream s = stream_of(c, 2, 3);
  const at::Tensor bits = y.scalar_type() == at::kBool ? y : at::empty(y.sizes(), at::kBool);
  bool* out = bits.mutable_data_ptr<bool>();
  for_words(s.seed, s.offset, y.numel(), [&](int64_t i, uint32_t a, uint32_t b) { out[i] = unit_double(a, b) < p; });
  if (!bits.is_same(y)) {
    y.copy_(bits);
  }
}

// inputs shape, seed [seed, offset], minval, maxval; integers in [minval, maxval); both 0: the type's full range
void uniform_int(OpContext& c) {
  const at::Tensor y = c.out(0);
  const Stream s = stream_of(c, 1, 1);
  const uint64_t low = static_cast<uint64_t>(c.in_values(2).at(0));
  const uint64_t range = static_cast<uint64_t>(c.in_values(3).at(0)) - low;
  const at::Tensor wide = y.scalar_type() == at::kLong ? y : at::empty(y.sizes(), at::kLong);
  int64_t* out = wide.mutable_data_ptr<int64_t>();
  for_words(s.seed, s.offset, y.numel(), [&](int64_t i, uint32_t a, uint32_t b) {
    const uint64_t word = (uint64_t{a} << 32) | b;
    // The high half of the product maps the word to the range without the low bits' bias of a remainder.
    const uint64_t scaled =
        range == 0 ? word : static_cast<uint64_t>((static_cast<unsigned __int128>(word) * range) >> 64);
    out[i] = static_cast<int64_t>(low + scaled);
  });
  if (!wide.is_same(y)) {
    y.copy_(wide);
  }
}

// inputs n, seed, offset: a permutation of 0..n-1, drawn by sorting random keys
void randperm(OpContext& c) {
  const at::Tensor y = c.out(0);
  const Stream s = stream_of(c, 1, 2);
  const int64_t n = y.numel();
  std::vector<std::pair<uint64_t, int64_t>> keys(static_cast<size_t>(n));
  for_words(s.seed, s.offset, n, [&](int64_t i, uint32_t a, uint32_t b) { keys[i] = {(uint64_t{a} << 32) | b, i}; });
  std::sort(keys.begin(), keys.end());
  const at::Tensor order = at::empty({n}, at::kLong);
  for (int64_t i = 0; i < n; ++i) {
    order.mutable_data_ptr<int64_t>()[i] = keys[i].second;
  }
  y.copy_(order);
}

// inputs x [rows, classes] of weights, seed, offset; y [rows, numsamples]
void multinomial(OpContext& c) {
  const at::Tensor x = c.in(0).to(at::kDouble).contiguous(), y = c.out(0);
  const Stream s = stream_of(c, 1, 2);
  const int64_t classes = x.size(-1), rows = x.numel() / std::max<int64_t>(classes, 1);
  const int64_t samples = c.attrs().integer("numsamples", 1);
  const bool replacement = c.attrs().boolean("replacement", true);
  const at::Tensor picks = at::empty({rows, samples}, at::kLong);
  int64_t* out = picks.mutable_data_ptr<int64_t>();
  const double* weights = x.const_data_ptr<double>();
  const int64_t draws = replacement ? samples : classes;
  std::vector<double> u(static_cast<size_t>(rows * draws));
  for_words(s.seed, s.offset, rows * draws, [&](int64_t i, uint32_t a, uint32_t b) { u[i] = unit_double(a, b); });
  for (int64_t r = 0; r < rows; ++r) {
    const double* w = weights + r * classes;
    double total = 0;
    for (int64_t j = 0; j < classes; ++j) {
      if (!(w[j] >= 0) || std::isinf(w[j])) {
        refuse("probability tensor contains either `inf`, `nan` or element < 0");
      }
      total += w[j];
    }
    if (total <= 0) refuse("invalid multinomial distribution (sum of probabilities <= 0)");
    if (replacement) {
      std::vector<double> cumulative(w, w + classes);
      std::partial_sum(cumulative.begin(), cumulative.end(), cumulative.begin());
      for (int64_t k = 0; k < samples; ++k) {
        const double target = u[r * draws + k] * cumulative.back();
        const auto it = std::upper_bound(cumulative.begin(), cumulative.end(), target);
        out[r * samples + k] = std::min<int64_t>(it - cumulative.begin(), classes - 1);
      }
    } else {
      // Classes in the order of exponential arrival times with their weights as rates; those without weight come last,
      // as upstream has them where more are drawn than have any.
      std::vector<std::pair<double, int64_t>> arrivals;
      for (int64_t j = 0; j < classes; ++j) {
        arrivals.emplace_back(w[j] > 0 ? -std::log1p(-u[r * draws + j]) / w[j] : INFINITY, j);
      }
      std::partial_sort(arrivals.begin(), arrivals.begin() + samples, arrivals.end());
      for (int64_t k = 0; k < samples; ++k) {
        out[r * samples + k] = arrivals[k].second;
      }
    }
  }
  y.copy_(picks.reshape(y.sizes()));
}

// inputs x, mask: y = mask ? x * value : 0
void masked_scale(OpContext& c) {
  const at::Tensor x = c.in(0), y = c.out(0);
  at::Tensor target = y;
  at::mul_out(target, x, c.in(1).to(x.scalar_type()));
  target.mul_(c.attrs().real("value", 1.0));
}

const std::vector<DtypeSet> kShapeKey = {kIntTypes};

SIM_OP(StatelessRandomUniformV2).inputs(4).dtypes(kShapeKey).attrs({"dtype:dtype"}).run(uniform);
SIM_OP(StatelessRandomNormalV2).inputs(4).dtypes(kShapeKey).attrs({"dtype:dtype"}).run(normal);
SIM_OP(StatelessBernoulli)
    .inputs(4)
    .dtypes({kIntTypes, kFloatTypes, kIntTypes, kIntTypes})
    .attrs({"dtype:dtype"})
    .run(bernoulli);
SIM_OP(StatelessRandomUniformInt).inputs(4).dtypes(kShapeKey).run(uniform_int);
SIM_OP(StatelessRandperm).inputs(3).dtypes(kShapeKey).attrs({"layout:int", "dtype:dtype"}).run(randperm);
SIM_OP(MultinomialWithReplacement)
    .inputs(3)
    .dtypes({kFloatTypes, kIntTypes, kIntTypes})
    .attrs({"numsamples:int", "replacement:bool"})
    .require({"numsamples"})
    .run(multinomial);
SIM_OP(MaskedScale)
    .inputs(2)
    .dtypes({kFloatTypes, kAllTypes})
    .attrs({"value:float"})
    .require({"value"})
    .run(masked_scale);

}  // namespace
}  // namespace acl_sim
