// See flash.h.

#include "ops/attention/flash.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention/flash_rows.h"
#include "ops/matmul/gemm.h"

namespace acl_sim {
namespace {

// A tile of this many keys and its operands stay in a core's second cache.
constexpr int64_t kKeys = 256;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The keys that some query of a block sees.
struct Seen {
  int64_t first, end;
  Seen(const FlashHead& h, int64_t from, int64_t count) : first(h.keys), end(0) {
    for (int64_t i = from; i < from + count; ++i) {
      const int64_t begins = h.first_key(i), ends = h.end_key(i);
      if (begins >= ends) continue;
      first = std::min(first, begins);
      end = std::max(end, ends);
    }
  }
};

// What a tile makes of one query's scores beyond their factor.
struct Extras {
  const FlashHead& h;
  std::vector<float> bias;
  explicit Extras(const FlashHead& head) : h(head), bias(head.bias != nullptr ? kKeys : 0) {}

  bool any() const { return h.bias != nullptr || h.mask != nullptr; }

  // Of the keys from `first` on: scales them, too.
  void apply(float* x, int64_t i, int64_t first, int64_t n) {
    scale_row(x, n, h.scale);
    if (h.bias != nullptr) {
      if (h.bias_by_distance) {
        // The last element stands for equal positions, and for those behind.
        const int64_t before = std::clamp<int64_t>(i - first, 0, n);
        if (before > 0) read_row(h.bias, h.bias_type, h.bias_last + first - i, 1, before, bias.data());
        if (before < n) read_row(h.bias, h.bias_type, h.bias_last, 0, n - before, bias.data() + before);
      } else {
        read_row(h.bias, h.bias_type, i * h.bias_row + first * h.bias_column, h.bias_column, n, bias.data());
      }
      add_to_row(x, bias.data(), n, h.bias_factor);
    }
    if (h.mask != nullptr) {
      hide_row(x, h.mask + i * h.mask_row + first * h.mask_column, h.mask_column, n, h.mask_shows);
    }
  }

  void drop(float* x, int64_t i, int64_t first, int64_t n) const {
    drop_row(x, h.kept, h.first_bit + i * h.keys + first, n, 1 / h.keep_prob);
  }
};

// Where the keys that query i sees lie in a tile.
struct Part {
  int64_t begin, end;
  Part(const FlashHead& h, int64_t i, int64_t first, int64_t n)
      : begin(std::clamp<int64_t>(h.first_key(i) - first, 0, n)),
        end(std::clamp<int64_t>(h.end_key(i) - first, begin, n)) {}
  void clear_rest(float* row, int64_t n) const {
    std::fill(row, row + begin, 0.0F);
    std::fill(row + end, row + n, 0.0F);
  }
};

void add_bias_gradient(const FlashHead& h, float* dbias, const float* g, int64_t i, int64_t first, int64_t n,
                       float factor) {
  if (h.bias_by_distance) {
    for (int64_t j = 0; j < n; ++j) dbias[std::min(h.bias_last, h.bias_last + first + j - i)] += factor * g[j];
  } else if (h.bias_column == 0) {
    for (int64_t j = 0; j < n; ++j) dbias[i * h.bias_row] += factor * g[j];
  } else {
    add_to_row(dbias + i * h.bias_row + first, g, n, factor);
  }
}

}  // namespace

int64_t FlashHead::first_key(int64_t i) const {
  if (before == INT64_MAX || prefix > 0) return 0;
  return std::clamp<int64_t>(i + shift - before, 0, keys);
}

int64_t FlashHead::end_key(int64_t i) const {
  if (after == INT64_MAX) return keys;
  return std::clamp<int64_t>(std::max(i + shift + after + 1, prefix), 0, keys);
}

void flash_forward(const FlashHead& h, int64_t first, Rows<float> out, FlashStatistics statistics) {
  const int64_t rows = std::min(kFlashQueries, h.queries - first), width = h.value.width;
  std::vector<float> tile(static_cast<size_t>(kFlashQueries * kKeys)), sums(static_cast<size_t>(rows * width));
  std::vector<float> max(static_cast<size_t>(rows), -kInfinity), sum(static_cast<size_t>(rows), 0.0F);
  if (h.sink != nullptr) {
    std::fill(max.begin(), max.end(), *h.sink);
    std::fill(sum.begin(), sum.end(), 1.0F);
  }
  Extras extras(h);
  const Seen seen(h, first, rows);
  for (int64_t key = seen.first; key < seen.end; key += kKeys) {
    const int64_t n = std::min(kKeys, seen.end - key);
    gemm_nt(rows, n, h.query.width, h.query.row(first), h.query.stride, h.key.row(key), h.key.stride, 0.0F, tile.data(),
            kKeys);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = first + r;
      float* row = tile.data() + r * kKeys;
      const Part part(h, i, key, n);
      part.clear_rest(row, n);
      const int64_t count = part.end - part.begin;
      if (count == 0) continue;
      float* x = row + part.begin;
      if (extras.any()) extras.apply(x, i, key + part.begin, count);
      const float top = std::max(max[r], scaled_max(x, count, extras.any() ? 1.0F : h.scale));
      if (top == -kInfinity) {
        // NaN has no order; what is hidden has no share.
        for (int64_t j = 0; j < count; ++j) x[j] = std::isnan(x[j]) ? x[j] : 0.0F;
        for (int64_t j = 0; j < count; ++j) sum[r] += x[j];
        continue;
      }
      if (top != max[r]) {
        const float factor = std::exp(max[r] - top);
        sum[r] *= factor;
        scale_row(sums.data() + r * width, width, factor);
        max[r] = top;
      }
      sum[r] += exponentials(x, count, top);
      if (h.kept != nullptr) extras.drop(x, i, key + part.begin, count);
    }
    gemm_nn(rows, width, n, tile.data(), kKeys, h.value.row(key), h.value.stride, 1.0F, sums.data(), width);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const bool nothing = max[r] == -kInfinity && sum[r] == 0;
    const float share = nothing ? 0.0F : 1 / sum[r];
    const float* from = sums.data() + r * width;
    float* to = out.row(first + r);
    for (int64_t d = 0; d < width; ++d) to[d] = nothing ? 0.0F : from[d] * share;
    statistics.max[r] = nothing ? 0.0F : max[r];
    statistics.sum[r] = nothing ? 0.0F : sum[r];
  }
}

void flash_backward(const FlashHead& h, const FlashGradient& g) {
  const int64_t width = h.query.width, value_width = h.value.width;
  std::vector<float> tile(static_cast<size_t>(kFlashQueries * kKeys)), gradients(tile.size());
  std::vector<float> mean(static_cast<size_t>(kFlashQueries));
  Extras extras(h);
  for (int64_t first = 0; first < h.queries; first += kFlashQueries) {
    const int64_t rows = std::min(kFlashQueries, h.queries - first);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = first + r;
      std::fill(g.dquery.row(i), g.dquery.row(i) + width, 0.0F);
      mean[r] = dot(g.dout.row(i), g.out.row(i), value_width);
      if (g.dsink != nullptr && g.sum[i] != 0) *g.dsink -= std::exp(*h.sink - g.max[i]) / g.sum[i] * mean[r];
    }
    const Seen seen(h, first, rows);
    for (int64_t key = seen.first; key < seen.end; key += kKeys) {
      const int64_t n = std::min(kKeys, seen.end - key);
      gemm_nt(rows, n, width, h.query.row(first), h.query.stride, h.key.row(key), h.key.stride, 0.0F, tile.data(),
              kKeys);
      gemm_nt(rows, n, value_width, g.dout.row(first), g.dout.stride, h.value.row(key), h.value.stride, 0.0F,
              gradients.data(), kKeys);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = first + r;
        const Part part(h, i, key, n);
        float *x = tile.data() + r * kKeys, *dx = gradients.data() + r * kKeys;
        if (g.sum[i] == 0) {
          std::fill(x, x + n, 0.0F);
          std::fill(dx, dx + n, 0.0F);
          continue;
        }
        part.clear_rest(x, n);
        part.clear_rest(dx, n);
        const int64_t count = part.end - part.begin, from = key + part.begin;
        if (count == 0) continue;
        x += part.begin;
        dx += part.begin;
        if (extras.any()) extras.apply(x, i, from, count);
        if (h.kept != nullptr) extras.drop(dx, i, from, count);
        gradient_row(x, dx, count, extras.any() ? 1.0F : h.scale, g.max[i], 1 / g.sum[i], mean[r],
                     g.dbias != nullptr ? 1.0F : h.scale);
        if (g.dbias != nullptr) {
          add_bias_gradient(h, g.dbias, dx, i, from, count, h.bias_factor);
          scale_row(dx, count, h.scale);
        }
        if (h.kept != nullptr) extras.drop(x, i, from, count);
      }
      gemm_tn(n, value_width, rows, tile.data(), kKeys, g.dout.row(first), g.dout.stride, 1.0F, g.dvalue.row(key),
              g.dvalue.stride);
      gemm_nn(rows, width, n, gradients.data(), kKeys, h.key.row(key), h.key.stride, 1.0F, g.dquery.row(first),
              g.dquery.stride);
      gemm_tn(n, width, rows, gradients.data(), kKeys, h.query.row(first), h.query.stride, 1.0F, g.dkey.row(key),
              g.dkey.stride);
    }
  }
}

}  // namespace acl_sim
