// See norm_planes.h.

#include "ops/normalization/norm_planes.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/half_elements.h"
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

template <class T>
SIM_INLINE void normalize(const T* __restrict x, int64_t n, float mean, float scale, float shift, T* __restrict y) {
  for (int64_t i = 0; i < n; ++i) write_element(y + i, (read_element(x + i) - mean) * scale + shift);
}

template <class T>
SIM_INLINE void gradient(const T* __restrict dy, const T* __restrict x, int64_t n, float mean, float by_dy, float by_x,
                         float shift, T* __restrict dx) {
  for (int64_t i = 0; i < n; ++i) {
    write_element(dx + i, read_element(dy + i) * by_dy + ((read_element(x + i) - mean) * by_x + shift));
  }
}

template <class T>
SIM_INLINE void scaled(const T* __restrict dy, int64_t n, float by_dy, T* __restrict dx) {
  for (int64_t i = 0; i < n; ++i) write_element(dx + i, read_element(dy + i) * by_dy);
}

// The compiler makes its versions of functions, not of templates.
#define SIM_PLANE_KERNELS(T)                                                                                    \
  SIM_MULTIVERSION void normalize_plane(const T* x, int64_t n, float mean, float scale, float shift, T* y) {    \
    normalize(x, n, mean, scale, shift, y);                                                                     \
  }                                                                                                             \
  SIM_MULTIVERSION void gradient_plane(const T* dy, const T* x, int64_t n, float mean, float by_dy, float by_x, \
                                       float shift, T* dx) {                                                    \
    gradient(dy, x, n, mean, by_dy, by_x, shift, dx);                                                           \
  }                                                                                                             \
  SIM_MULTIVERSION void scale_plane(const T* dy, int64_t n, float by_dy, T* dx) { scaled(dy, n, by_dy, dx); }
SIM_PLANE_KERNELS(float)
SIM_PLANE_KERNELS(c10::BFloat16)
SIM_PLANE_KERNELS(c10::Half)
#undef SIM_PLANE_KERNELS

#define SIM_WIDEN(T)                                                                       \
  SIM_MULTIVERSION void widen(const T* __restrict from, int64_t n, float* __restrict to) { \
    for (int64_t i = 0; i < n; ++i) to[i] = read_element(from + i);                        \
  }
SIM_WIDEN(c10::BFloat16)
SIM_WIDEN(c10::Half)
#undef SIM_WIDEN

// A block's elements as fp32: where they lie, or in `scratch`, which holds a block.
const float* as_floats(const float* x, int64_t, float*) { return x; }
template <class T>
const float* as_floats(const T* x, int64_t n, float* scratch) {
  widen(x, n, scratch);
  return scratch;
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

template <class T>
void plane_statistics(const T* x, Planes shape, double* mean, double* m2) {
  std::vector<Moments> parts(static_cast<size_t>(shape.count()));
  for_planes(shape, [&](int64_t i, int64_t, int64_t offset) {
    Moments part;
    float scratch[kBlock];
    for (int64_t begin = 0; begin < shape.area; begin += kBlock) {
      const int64_t n = std::min(kBlock, shape.area - begin);
      float center, residual, m2_of_block;
      block_moments(as_floats(x + offset + begin, n, scratch), n, &center, &residual, &m2_of_block);
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

template <class T>
void plane_normalize(const T* x, Planes shape, const float* mean, const float* scale, const float* shift, T* y) {
  for_planes(shape, [&](int64_t, int64_t j, int64_t offset) {
    normalize_plane(x + offset, shape.area, mean[j], scale[j], shift[j], y + offset);
  });
}

template <class T>
void plane_gradient_sums(const T* dy, const T* x, Planes shape, const float* mean, double* sum_dy, double* sum_dy_x) {
  struct Sums {
    double dy = 0, dy_x = 0;
  };
  std::vector<Sums> parts(static_cast<size_t>(shape.count()));
  for_planes(shape, [&](int64_t i, int64_t j, int64_t offset) {
    Sums part;
    float scratch[2][kBlock];
    for (int64_t begin = 0; begin < shape.area; begin += kBlock) {
      const int64_t n = std::min(kBlock, shape.area - begin);
      float block_dy, block_dy_x;
      block_gradient_sums(as_floats(dy + offset + begin, n, scratch[0]), as_floats(x + offset + begin, n, scratch[1]),
                          n, mean[j], &block_dy, &block_dy_x);
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

template <class T>
void plane_gradient(const T* dy, const T* x, Planes shape, const float* mean, const float* by_dy, const float* by_x,
                    const float* shift, T* dx) {
  for_planes(shape, [&](int64_t, int64_t j, int64_t offset) {
    if (x == nullptr) {
      scale_plane(dy + offset, shape.area, by_dy[j], dx + offset);
    } else {
      gradient_plane(dy + offset, x + offset, shape.area, mean[j], by_dy[j], by_x[j], shift[j], dx + offset);
    }
  });
}

#define SIM_PLANES_OF(T)                                                                         \
  template void plane_statistics(const T*, Planes, double*, double*);                            \
  template void plane_normalize(const T*, Planes, const float*, const float*, const float*, T*); \
  template void plane_gradient_sums(const T*, const T*, Planes, const float*, double*, double*); \
  template void plane_gradient(const T*, const T*, Planes, const float*, const float*, const float*, const float*, T*);
SIM_PLANES_OF(float)
SIM_PLANES_OF(c10::BFloat16)
SIM_PLANES_OF(c10::Half)
#undef SIM_PLANES_OF

}  // namespace acl_sim
