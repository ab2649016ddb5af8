// See norm_planes.h.

#include "ops/normalization/norm_planes.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/multiversion.h"
#include "ops/normalization/moments.h"

namespace acl_sim {
namespace {

// Vectors of the compiler's own kind: one source for every CPU.
constexpr int64_t kLanes = 16, kStep = 4 * kLanes;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef float LanesAnywhere __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

// What stays in the first-level cache between two passes, and few enough terms of a sum.
constexpr int64_t kBlock = 4096;
// What is worth a thread.
constexpr int64_t kGrain = 16384;

inline __attribute__((always_inline)) const LanesAnywhere& load(const float* p) {
  return *reinterpret_cast<const LanesAnywhere*>(p);
}

inline __attribute__((always_inline)) float sum(const Lanes& v) {
  float s[kLanes];
  std::memcpy(s, &v, sizeof(v));
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) s[k] += s[k + width];
  return s[0];
}

// Around a center near the mean; what the mean is off by it, times n, is the residual.
SIM_MULTIVERSION void block_moments(const float* __restrict x, int64_t n, float* __restrict center_of,
                                    float* __restrict residual, float* __restrict m2) {
  Lanes a = {}, b = {}, c = {}, d = {};
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    a += load(x + i);
    b += load(x + i + kLanes);
    c += load(x + i + 2 * kLanes);
    d += load(x + i + 3 * kLanes);
  }
  float rest = 0;
  for (int64_t j = i; j < n; ++j) rest += x[j];
  const float center = (sum((a + b) + (c + d)) + rest) / static_cast<float>(n);
  a = b = c = d = Lanes{};
  for (i = 0; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Lanes p = load(x + i) - center, q = load(x + i + kLanes) - center;
    a += p;
    b += q;
    c += p * p;
    d += q * q;
  }
  float rest_square = rest = 0;
  for (; i < n; ++i) {
    const float p = x[i] - center;
    rest += p;
    rest_square += p * p;
  }
  *center_of = center;
  *residual = sum(a + b) + rest;
  *m2 = sum(c + d) + rest_square;
}

SIM_MULTIVERSION void block_gradient_sums(const float* __restrict dy, const float* __restrict x, int64_t n, float mean,
                                          float* __restrict sum_dy, float* __restrict sum_dy_x) {
  Lanes a = {}, b = {}, c = {}, d = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Lanes g = load(dy + i), h = load(dy + i + kLanes);
    a += g;
    b += h;
    c += g * (load(x + i) - mean);
    d += h * (load(x + i + kLanes) - mean);
  }
  float rest = 0, rest_x = 0;
  for (; i < n; ++i) {
    rest += dy[i];
    rest_x += dy[i] * (x[i] - mean);
  }
  *sum_dy = sum(a + b) + rest;
  *sum_dy_x = sum(c + d) + rest_x;
}

SIM_MULTIVERSION void normalize_plane(const float* __restrict x, int64_t n, float mean, float scale, float shift,
                                      float* __restrict y) {
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale + shift;
}

SIM_MULTIVERSION void gradient_plane(const float* __restrict dy, const float* __restrict x, int64_t n, float mean,
                                     float by_dy, float by_x, float shift, float* __restrict dx) {
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * by_dy + ((x[i] - mean) * by_x + shift);
}

SIM_MULTIVERSION void scale_plane(const float* __restrict dy, int64_t n, float by_dy, float* __restrict dx) {
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * by_dy;
}

// Runs body(plane, channel, offset) over all planes in parallel, a few of them at a time if they are small.
template <class Body>
void for_planes(Planes shape, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, shape.area));
  at::parallel_for(0, shape.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i, i % shape.c, i * shape.area);
  });
}

template <class Body>
void for_channels(int64_t c, const Body& body) {
  at::parallel_for(0, c, 256, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) body(j);
  });
}

}  // namespace

void plane_statistics(const float* x, Planes shape, double* mean, double* m2) {
  std::vector<Moments> parts(static_cast<size_t>(shape.count()));
  for_planes(shape, [&](int64_t i, int64_t, int64_t offset) {
    Moments part;
    for (int64_t begin = 0; begin < shape.area; begin += kBlock) {
      const int64_t n = std::min(kBlock, shape.area - begin);
      float center, residual, m2_of_block;
      block_moments(x + offset + begin, n, &center, &residual, &m2_of_block);
      part.join(Moments::around(static_cast<double>(n), center, residual, m2_of_block));
    }
    parts[i] = part;
  });
  for_channels(shape.c, [&](int64_t j) {
    Moments all = parts[j];
    for (int64_t i = j + shape.c; i < shape.count(); i += shape.c) all.join(parts[i]);
    mean[j] = all.mean;
    m2[j] = all.m2;
  });
}

void plane_normalize(const float* x, Planes shape, const float* mean, const float* scale, const float* shift,
                     float* y) {
  for_planes(shape, [&](int64_t, int64_t j, int64_t offset) {
    normalize_plane(x + offset, shape.area, mean[j], scale[j], shift[j], y + offset);
  });
}

void plane_gradient_sums(const float* dy, const float* x, Planes shape, const float* mean, double* sum_dy,
                         double* sum_dy_x) {
  struct Sums {
    double dy = 0, dy_x = 0;
  };
  std::vector<Sums> parts(static_cast<size_t>(shape.count()));
  for_planes(shape, [&](int64_t i, int64_t j, int64_t offset) {
    Sums part;
    for (int64_t begin = 0; begin < shape.area; begin += kBlock) {
      float block_dy, block_dy_x;
      block_gradient_sums(dy + offset + begin, x + offset + begin, std::min(kBlock, shape.area - begin), mean[j],
                          &block_dy, &block_dy_x);
      part.dy += block_dy;
      part.dy_x += block_dy_x;
    }
    parts[i] = part;
  });
  for_channels(shape.c, [&](int64_t j) {
    Sums all;
    for (int64_t i = j; i < shape.count(); i += shape.c) {
      all.dy += parts[i].dy;
      all.dy_x += parts[i].dy_x;
    }
    sum_dy[j] = all.dy;
    sum_dy_x[j] = all.dy_x;
  });
}

void plane_gradient(const float* dy, const float* x, Planes shape, const float* mean, const float* by_dy,
                    const float* by_x, const float* shift, float* dx) {
  for_planes(shape, [&](int64_t, int64_t j, int64_t offset) {
    if (x == nullptr) {
      scale_plane(dy + offset, shape.area, by_dy[j], dx + offset);
    } else {
      gradient_plane(dy + offset, x + offset, shape.area, mean[j], by_dy[j], by_x[j], shift[j], dx + offset);
    }
  });
}

}  // namespace acl_sim
