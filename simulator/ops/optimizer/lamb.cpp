// LAMB over a flat tensor in two passes over memory: the moments and the norms of each parameter, then the step, which
// computes the update again instead of keeping it. CANN has no operator for a list, so FusedLamb is this device's own.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "ops/multiversion.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

struct Lamb {
  float lr, beta1, beta2, eps, decay;
};
struct Sums {
  double weight = 0, update = 0;  // of squares
};

// Pieces keep their operands in a core's cache between the passes; a group of parameters goes through both at once.
constexpr int64_t kPiece = 1 << 14;
constexpr int64_t kGroup = 1 << 19;
constexpr int64_t kRun = 256;  // summed in fp32 before it is added in fp64
constexpr float kLargestNorm = 10.0F;

inline float root(float x) { return std::sqrt(x); }

SIM_MULTIVERSION void lamb_moments(float* __restrict m, float* __restrict v, const float* __restrict g,
                                   const float* __restrict p, int64_t n, Lamb k, Sums& sums) {
  const float new1 = 1 - k.beta1, new2 = 1 - k.beta2, beta2 = k.beta2, eps = k.eps, decay = k.decay;
  // As lerp does, which takes the nearer end: m + (g - m) * new1, or g - (g - m) * beta1.
  const bool from_gradient = new1 >= 0.5F;
  const float of_mean = from_gradient ? 0.0F : 1.0F, of_gradient = 1 - of_mean;
  const float factor = from_gradient ? -k.beta1 : new1;
  double weights = 0, updates = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = std::min(n, begin + kRun);
    float weight = 0, update = 0;
#pragma omp simd reduction(+ : weight, update)
    for (int64_t i = begin; i < end; ++i) {
      const float mean = m[i] * of_mean + g[i] * of_gradient + (g[i] - m[i]) * factor;
      const float square = v[i] * beta2 + g[i] * g[i] * new2;
      const float u = mean / (root(square) + eps) + decay * p[i];
      m[i] = mean;
      v[i] = square;
      weight += p[i] * p[i];
      update += u * u;
    }
    weights += static_cast<double>(weight);
    updates += static_cast<double>(update);
  }
  sums = {weights, updates};
}

SIM_MULTIVERSION void lamb_step(float* __restrict p, const float* __restrict m, const float* __restrict v, int64_t n,
                                Lamb k, float rate) {
  const float eps = k.eps, decay = k.decay;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) p[i] -= rate * (m[i] / (root(v[i]) + eps) + decay * p[i]);
}

struct Piece {
  int64_t parameter, begin, end;
};

float ratio(const Sums& sums) {
  const auto weight = std::min(static_cast<float>(std::sqrt(sums.weight)), kLargestNorm);
  const auto update = static_cast<float>(std::sqrt(sums.update));
  return weight > 0 && update > 0 ? weight / update : 1.0F;
}

// flat param, grad, m, v; where each parameter begins and ends; lr, beta1, beta2, eps, weight_decay.
// Updates param, m and v.
void fused_lamb(OpContext& c) {
  const std::vector<int64_t> bounds = c.in_values(4);
  const auto number = [&](size_t i) { return static_cast<float>(c.in_scalar(i).toDouble()); };
  const Lamb k = {number(5), number(6), number(7), number(8), number(9)};
  const bool adam = c.attrs().boolean("adam", false);
  const auto* g = c.in(1).const_data_ptr<float>();
  float* data[3];
  const size_t inputs[] = {0, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    const at::Tensor before = c.in(inputs[i]), after = c.out(i);
    if (before.numel() != c.in(1).numel()) refuse("FusedLamb: the tensors differ in length");
    if (before.const_data_ptr() != after.const_data_ptr()) after.copy_(before);
    data[i] = after.mutable_data_ptr<float>();
  }
  float *p = data[0], *m = data[1], *v = data[2];
  if (bounds.empty() || bounds.size() % 2 != 0 || bounds.front() < 0 || bounds.back() > c.in(1).numel() ||
      !std::is_sorted(bounds.begin(), bounds.end()))
    refuse("FusedLamb: the bounds of parameters do not rise within the tensor");
  std::vector<Piece> pieces;
  std::vector<Sums> sums;
  const size_t parameters = bounds.size() / 2;
  const auto begin_of = [&](size_t i) { return bounds[2 * i]; };
  const auto end_of = [&](size_t i) { return bounds[2 * i + 1]; };
  for (size_t first = 0; first < parameters;) {
    size_t last = first + 1;
    while (last < parameters && end_of(last) - begin_of(first) <= kGroup) ++last;
    pieces.clear();
    for (size_t i = first; i < last; ++i) {
      for (int64_t at = begin_of(i); at < end_of(i); at += kPiece)
        pieces.push_back({static_cast<int64_t>(i - first), at, std::min(at + kPiece, end_of(i))});
    }
    sums.assign(pieces.size(), {});
    const auto count = static_cast<int64_t>(pieces.size());
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Piece& piece = pieces[static_cast<size_t>(i)];
        lamb_moments(m + piece.begin, v + piece.begin, g + piece.begin, p + piece.begin, piece.end - piece.begin, k,
                     sums[static_cast<size_t>(i)]);
      }
    });
    // In the order of the pieces, whatever the number of threads.
    std::vector<Sums> whole(last - first);
    for (size_t i = 0; i < pieces.size(); ++i) {
      auto& of = whole[static_cast<size_t>(pieces[i].parameter)];
      of.weight += sums[i].weight;
      of.update += sums[i].update;
    }
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Piece& piece = pieces[static_cast<size_t>(i)];
        const float scale = adam ? 1.0F : ratio(whole[static_cast<size_t>(piece.parameter)]);
        lamb_step(p + piece.begin, m + piece.begin, v + piece.begin, piece.end - piece.begin, k, k.lr * scale);
      }
    });
    first = last;
  }
}

SIM_OP(FusedLamb).inputs(10).outputs(3).attrs({"adam:bool"}).run(fused_lamb);

}  // namespace
}  // namespace acl_sim
