// See norm_rows.h.

#include "ops/normalization/norm_rows.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "ops/half_elements.h"
#include "ops/multiversion.h"
#include "ops/normalization/moments.h"

namespace acl_sim {
namespace {

// Blocks are cut by the shape alone. At least 64 rows each, at most 512 of them, and few enough floats for the cache.
int64_t block_rows(int64_t rows) { return std::max<int64_t>(64, (rows + 511) / 512); }

// So many channels at a time have their sums in registers.
constexpr int64_t kColumns = 64;

// Around centers near the means; what a mean is off by it, times the rows, is its residual.
template <class T>
SIM_INLINE void moments_of_columns(const T* __restrict x, int64_t rows, int64_t stride, int64_t c,
                                   float* __restrict mean, float* __restrict residual, float* __restrict m2) {
  float sum[kColumns] = {}, rest[kColumns] = {}, squares[kColumns] = {};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < c; ++j) sum[j] += read_element(x + r * stride + j);
  }
  const float inverse = 1.0F / static_cast<float>(rows);
  for (int64_t j = 0; j < c; ++j) sum[j] *= inverse;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < c; ++j) {
      const float d = read_element(x + r * stride + j) - sum[j];
      rest[j] += d;
      squares[j] += d * d;
    }
  }
  for (int64_t j = 0; j < c; ++j) {
    mean[j] = sum[j];
    residual[j] = rest[j];
    m2[j] = squares[j];
  }
}

template <class T>
SIM_INLINE void moments(const T* __restrict x, int64_t rows, int64_t c, float* __restrict mean,
                        float* __restrict residual, float* __restrict m2) {
  int64_t j = 0;
  for (; j + kColumns <= c; j += kColumns) {
    moments_of_columns(x + j, rows, c, kColumns, mean + j, residual + j, m2 + j);
  }
  if (j < c) moments_of_columns(x + j, rows, c, c - j, mean + j, residual + j, m2 + j);
}

template <class T>
SIM_INLINE void gradient_sums_of_columns(const T* __restrict dy, const T* __restrict x, int64_t rows, int64_t stride,
                                         int64_t c, const float* __restrict mean, float* __restrict sum_dy,
                                         float* __restrict sum_dy_x) {
  float sum[kColumns] = {}, by_x[kColumns] = {};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < c; ++j) {
      const float grad = read_element(dy + r * stride + j);
      sum[j] += grad;
      by_x[j] += grad * (read_element(x + r * stride + j) - mean[j]);
    }
  }
  for (int64_t j = 0; j < c; ++j) {
    sum_dy[j] = sum[j];
    sum_dy_x[j] = by_x[j];
  }
}

template <class T>
SIM_INLINE void gradient_sums(const T* __restrict dy, const T* __restrict x, int64_t rows, int64_t c,
                              const float* __restrict mean, float* __restrict sum_dy, float* __restrict sum_dy_x) {
  int64_t j = 0;
  for (; j + kColumns <= c; j += kColumns) {
    gradient_sums_of_columns(dy + j, x + j, rows, c, kColumns, mean + j, sum_dy + j, sum_dy_x + j);
  }
  if (j < c) gradient_sums_of_columns(dy + j, x + j, rows, c, c - j, mean + j, sum_dy + j, sum_dy_x + j);
}

template <class T>
SIM_INLINE void normalize(const T* __restrict x, int64_t rows, int64_t c, const float* __restrict mean,
                          const float* __restrict scale, const float* __restrict shift, T* __restrict y) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* __restrict from = x + r * c;
    T* __restrict to = y + r * c;
    for (int64_t j = 0; j < c; ++j) {
      write_element(to + j, (read_element(from + j) - mean[j]) * scale[j] + shift[j]);
    }
  }
}

template <class T>
SIM_INLINE void gradient(const T* __restrict dy, const T* __restrict x, int64_t rows, int64_t c,
                         const float* __restrict mean, const float* __restrict by_dy, const float* __restrict by_x,
                         const float* __restrict shift, T* __restrict dx) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* __restrict g = dy + r * c;
    const T* __restrict v = x + r * c;
    T* __restrict to = dx + r * c;
    for (int64_t j = 0; j < c; ++j) {
      const float of_x = (read_element(v + j) - mean[j]) * by_x[j] + shift[j];
      write_element(to + j, read_element(g + j) * by_dy[j] + of_x);
    }
  }
}

template <class T>
SIM_INLINE void scaled(const T* __restrict dy, int64_t rows, int64_t c, const float* __restrict scale,
                       T* __restrict dx) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < c; ++j) {
      write_element(dx + r * c + j, read_element(dy + r * c + j) * scale[j]);
    }
  }
}

// The compiler makes its versions of functions, not of templates.
#define SIM_ROW_KERNELS(T)                                                                                            \
  SIM_MULTIVERSION void block_moments(const T* x, int64_t rows, int64_t c, float* mean, float* residual, float* m2) { \
    moments(x, rows, c, mean, residual, m2);                                                                          \
  }                                                                                                                   \
  SIM_MULTIVERSION void block_gradient_sums(const T* dy, const T* x, int64_t rows, int64_t c, const float* mean,      \
                                            float* sum_dy, float* sum_dy_x) {                                         \
    gradient_sums(dy, x, rows, c, mean, sum_dy, sum_dy_x);                                                            \
  }                                                                                                                   \
  SIM_MULTIVERSION void normalize_block(const T* x, int64_t rows, int64_t c, const float* mean, const float* scale,   \
                                        const float* shift, T* y) {                                                   \
    normalize(x, rows, c, mean, scale, shift, y);                                                                     \
  }                                                                                                                   \
  SIM_MULTIVERSION void gradient_block(const T* dy, const T* x, int64_t rows, int64_t c, const float* mean,           \
                                       const float* by_dy, const float* by_x, const float* shift, T* dx) {            \
    gradient(dy, x, rows, c, mean, by_dy, by_x, shift, dx);                                                           \
  }                                                                                                                   \
  SIM_MULTIVERSION void scale_block(const T* dy, int64_t rows, int64_t c, const float* scale, T* dx) {                \
    scaled(dy, rows, c, scale, dx);                                                                                   \
  }
SIM_ROW_KERNELS(float)
SIM_ROW_KERNELS(c10::BFloat16)
SIM_ROW_KERNELS(c10::Half)
#undef SIM_ROW_KERNELS

// Runs body(block index, first row, rows) over all blocks in parallel.
template <class Body>
void for_blocks(int64_t rows, const Body& body) {
  const int64_t step = block_rows(rows), blocks = (rows + step - 1) / step;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      body(i, i * step, std::min(step, rows - i * step));
    }
  });
}

int64_t block_count(int64_t rows) { return (rows + block_rows(rows) - 1) / block_rows(rows); }

}  // namespace

template <class T>
void row_statistics(const T* x, int64_t rows, int64_t c, double* mean, double* m2) {
  const int64_t blocks = block_count(rows), step = block_rows(rows);
  std::vector<float> partial(static_cast<size_t>(3 * blocks * c));
  for_blocks(rows, [&](int64_t i, int64_t first, int64_t count) {
    float* own = &partial[3 * i * c];
    block_moments(x + first * c, count, c, own, own + c, own + 2 * c);
  });
  for (int64_t j = 0; j < c; ++j) {
    Moments all;
    for (int64_t i = 0; i < blocks; ++i) {
      const float* own = &partial[3 * i * c + j];
      all.join(Moments::around(static_cast<double>(std::min(step, rows - i * step)), own[0], own[c], own[2 * c]));
    }
    mean[j] = all.mean;
    m2[j] = all.m2;
  }
}

template <class T>
void row_normalize(const T* x, int64_t rows, int64_t c, const float* mean, const float* scale, const float* shift,
                   T* y) {
  for_blocks(rows, [&](int64_t, int64_t first, int64_t count) {
    normalize_block(x + first * c, count, c, mean, scale, shift, y + first * c);
  });
}

template <class T>
void row_gradient_sums(const T* dy, const T* x, int64_t rows, int64_t c, const float* mean, double* sum_dy,
                       double* sum_dy_x) {
  const int64_t blocks = block_count(rows);
  std::vector<float> partial(static_cast<size_t>(2 * blocks * c));
  for_blocks(rows, [&](int64_t i, int64_t first, int64_t count) {
    block_gradient_sums(dy + first * c, x + first * c, count, c, mean, &partial[2 * i * c], &partial[(2 * i + 1) * c]);
  });
  std::fill(sum_dy, sum_dy + c, 0.0);
  std::fill(sum_dy_x, sum_dy_x + c, 0.0);
  for (int64_t i = 0; i < blocks; ++i) {
    for (int64_t j = 0; j < c; ++j) {
      sum_dy[j] += partial[2 * i * c + j];
      sum_dy_x[j] += partial[(2 * i + 1) * c + j];
    }
  }
}

template <class T>
void row_gradient(const T* dy, const T* x, int64_t rows, int64_t c, const float* mean, const float* by_dy,
                  const float* by_x, const float* shift, T* dx) {
  for_blocks(rows, [&](int64_t, int64_t first, int64_t count) {
    if (x == nullptr) {
      scale_block(dy + first * c, count, c, by_dy, dx + first * c);
    } else {
      gradient_block(dy + first * c, x + first * c, count, c, mean, by_dy, by_x, shift, dx + first * c);
    }
  });
}

#define SIM_ROWS_OF(T)                                                                                       \
  template void row_statistics(const T*, int64_t, int64_t, double*, double*);                                \
  template void row_normalize(const T*, int64_t, int64_t, const float*, const float*, const float*, T*);     \
  template void row_gradient_sums(const T*, const T*, int64_t, int64_t, const float*, double*, double*);     \
  template void row_gradient(const T*, const T*, int64_t, int64_t, const float*, const float*, const float*, \
                             const float*, T*);
SIM_ROWS_OF(float)
SIM_ROWS_OF(c10::BFloat16)
SIM_ROWS_OF(c10::Half)
#undef SIM_ROWS_OF

}  // namespace acl_sim
