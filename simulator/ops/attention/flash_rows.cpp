// See flash_rows.h.

#include "ops/attention/flash_rows.h"

#include <bit>
#include <cstring>
#include <limits>

#include "ops/half_elements.h"
#include "ops/multiversion.h"

namespace acl_sim {
namespace {

constexpr int64_t kLanes = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t LaneInts __attribute__((vector_size(kLanes * sizeof(int32_t))));

SIM_INLINE void load(Lanes& v, const float* p) { std::memcpy(&v, p, sizeof(v)); }
SIM_INLINE void store(float* p, const Lanes& v) { std::memcpy(p, &v, sizeof(v)); }
// The last ones of a row, and `rest` in the other lanes.
SIM_INLINE void load_last(Lanes& v, const float* p, int64_t n, float rest) {
  float all[kLanes];
  for (float& each : all) each = rest;
  std::memcpy(all, p, static_cast<size_t>(n) * sizeof(float));
  std::memcpy(&v, all, sizeof(v));
}
SIM_INLINE void store_last(float* p, const Lanes& v, int64_t n) {
  float all[kLanes];
  std::memcpy(all, &v, sizeof(v));
  std::memcpy(p, all, static_cast<size_t>(n) * sizeof(float));
}

SIM_INLINE float sum_of(const Lanes& v) {
  float s[kLanes];
  std::memcpy(s, &v, sizeof(v));
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) s[k] += s[k + width];
  return s[0];
}
SIM_INLINE float max_of(const Lanes& v) {
  float s[kLanes];
  std::memcpy(s, &v, sizeof(v));
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) s[k] = s[k + width] > s[k] ? s[k + width] : s[k];
  return s[0];
}

// exp(x) = 2^n exp(x - n log 2) with a series for the rest, which is at most log(2) / 2 away from 0. What would be
// subnormal is 0; NaN stays NaN.
SIM_INLINE void exponential(Lanes& x) {
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, which its last bits hold
  constexpr float kSmallest = -87.3F, kLargest = 88.3F;
  constexpr float kLog2High = 0.693359375F, kLog2Low = -2.12194440e-4F;
  const Lanes none = {};
  x = x > kLargest ? none + kLargest : x;
  const Lanes rounded = x * 1.44269504F + kRounder;
  const Lanes n = rounded - kRounder;
  const Lanes r = (x - n * kLog2High) - n * kLog2Low;
  Lanes y = r * (1.0F / 5040) + 1.0F / 720;
  y = y * r + 1.0F / 120;
  y = y * r + 1.0F / 24;
  y = y * r + 1.0F / 6;
  y = y * r + 0.5F;
  y = y * r + 1.0F;
  y = y * r + 1.0F;
  LaneInts power;
  std::memcpy(&power, &rounded, sizeof(power));
  power = (power - (std::bit_cast<int32_t>(kRounder) - 127)) << 23;
  Lanes scale;
  std::memcpy(&scale, &power, sizeof(scale));
  y *= scale;
  x = x < kSmallest ? none : y;
}

}  // namespace

SIM_MULTIVERSION float scaled_max(float* x, int64_t n, float factor) {
  Lanes a = Lanes{} - kInfinity, b = a;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    Lanes p, q;
    load(p, x + i);
    load(q, x + i + kLanes);
    p *= factor;
    q *= factor;
    store(x + i, p);
    store(x + i + kLanes, q);
    a = p > a ? p : a;
    b = q > b ? q : b;
  }
  a = b > a ? b : a;
  float max = max_of(a);
  for (; i < n; ++i) {
    x[i] *= factor;
    max = x[i] > max ? x[i] : max;
  }
  return max;
}

SIM_MULTIVERSION float exponentials(float* x, int64_t n, float max) {
  Lanes a = {}, b = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    Lanes p, q;
    load(p, x + i);
    load(q, x + i + kLanes);
    p -= max;
    q -= max;
    exponential(p);
    exponential(q);
    store(x + i, p);
    store(x + i + kLanes, q);
    a += p;
    b += q;
  }
  for (; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    Lanes p;
    load_last(p, x + i, count, -kInfinity);
    p -= max;
    exponential(p);
    store_last(x + i, p, count);
    a += p;
  }
  return sum_of(a + b);
}

SIM_MULTIVERSION void scale_row(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

SIM_MULTIVERSION void add_to_row(float* __restrict x, const float* __restrict y, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] += factor * y[i];
}

SIM_MULTIVERSION void gradient_row(float* x, float* g, int64_t n, float scale, float max, float share, float mean,
                                   float factor) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes p, d;
    load(p, x + i);
    load(d, g + i);
    p = p * scale - max;
    exponential(p);
    p *= share;
    store(x + i, p);
    d = p * (d - mean) * factor;
    store(g + i, d);
  }
  if (i < n) {
    Lanes p, d;
    load_last(p, x + i, n - i, 0);
    load_last(d, g + i, n - i, 0);
    p = p * scale - max;
    exponential(p);
    p *= share;
    store_last(x + i, p, n - i);
    d = p * (d - mean) * factor;
    store_last(g + i, d, n - i);
  }
}

SIM_MULTIVERSION float dot(const float* x, const float* y, int64_t n) {
  Lanes a = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes p, q;
    load(p, x + i);
    load(q, y + i);
    a += p * q;
  }
  float sum = sum_of(a);
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

namespace {

// The compiler makes its versions of functions, not of templates.
#define SIM_READ(T)                                                                       \
  SIM_MULTIVERSION void read(const T* __restrict from, int64_t n, float* __restrict to) { \
    for (int64_t i = 0; i < n; ++i) to[i] = read_element(from + i);                       \
  }
SIM_READ(float)
SIM_READ(c10::BFloat16)
SIM_READ(c10::Half)
#undef SIM_READ

template <class T>
void read_some(const void* from, int64_t first, int64_t step, int64_t n, float* to) {
  const T* p = static_cast<const T*>(from) + first;
  if (step != 0) return read(p, n, to);
  const float single = read_element(p);
  for (int64_t i = 0; i < n; ++i) to[i] = single;
}

}  // namespace

void read_row(const void* from, c10::ScalarType type, int64_t first, int64_t step, int64_t n, float* to) {
  if (type == c10::kHalf) return read_some<c10::Half>(from, first, step, n, to);
  if (type == c10::kBFloat16) return read_some<c10::BFloat16>(from, first, step, n, to);
  read_some<float>(from, first, step, n, to);
}

SIM_MULTIVERSION void hide_row(float* x, const uint8_t* mask, int64_t step, int64_t n, bool shows) {
  if (step == 0) {
    if ((*mask != 0) == shows) return;
    for (int64_t i = 0; i < n; ++i) x[i] = -kInfinity;
    return;
  }
  for (int64_t i = 0; i < n; ++i) x[i] = (mask[i] != 0) == shows ? x[i] : -kInfinity;
}

SIM_MULTIVERSION void drop_row(float* x, const uint8_t* bits, int64_t first, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t bit = first + i;
    x[i] *= (bits[bit >> 3] >> (bit & 7) & 1) != 0 ? factor : 0.0F;
  }
}

}  // namespace acl_sim
