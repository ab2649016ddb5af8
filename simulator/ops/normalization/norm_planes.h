#pragma once
// Normalisation in fp32 over planes: x[outer, c, area], as contiguous images, sequences and volumes are stored.
// Statistics are taken as in norm_rows.h: block by block around each block's own mean, joined in double, and
// independent of the number of threads.

#include <cstdint>

namespace acl_sim {

struct Planes {
  int64_t outer, c, area;
  int64_t count() const { return outer * c; }
};

// mean[c] and the sum of squared deviations m2[c], over outer and area. T is float, BFloat16 or Half in all of these.
template <class T>
void plane_statistics(const T* x, Planes shape, double* mean, double* m2);

// y = (x - mean[c]) * scale[c] + shift[c]
template <class T>
void plane_normalize(const T* x, Planes shape, const float* mean, const float* scale, const float* shift, T* y);

// sum_dy[c] = sum of dy, sum_dy_x[c] = sum of dy * (x - mean)
template <class T>
void plane_gradient_sums(const T* dy, const T* x, Planes shape, const float* mean, double* sum_dy, double* sum_dy_x);

// dx = dy * by_dy[c] + (x - mean[c]) * by_x[c] + shift[c]; with x null: dx = dy * by_dy[c]
template <class T>
void plane_gradient(const T* dy, const T* x, Planes shape, const float* mean, const float* by_dy, const float* by_x,
                    const float* shift, T* dx);

}  // namespace acl_sim
