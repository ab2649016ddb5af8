#pragma once
// Batch normalisation over rows of channels: x[rows, c], as channels-last images and 2-D inputs are stored, of
// float, c10::BFloat16 or c10::Half. Numbers are fp32 from the reading of an element to the writing of one.
// Statistics are taken block by block around each block's own mean and joined in double, so neither the block's order
// of execution nor a large mean costs digits, and results do not depend on the number of threads.

#include <cstdint>

namespace acl_sim {

// mean[c] and the sum of squared deviations m2[c].
template <class T>
void row_statistics(const T* x, int64_t rows, int64_t c, double* mean, double* m2);

// y = (x - mean) * scale + shift
template <class T>
void row_normalize(const T* x, int64_t rows, int64_t c, const float* mean, const float* scale, const float* shift,
                   T* y);

// sum_dy[c] = sum of dy, sum_dy_x[c] = sum of dy * (x - mean)
template <class T>
void row_gradient_sums(const T* dy, const T* x, int64_t rows, int64_t c, const float* mean, double* sum_dy,
                       double* sum_dy_x);

// dx = dy * by_dy + (x - mean) * by_x + shift; with x null: dx = dy * by_dy
template <class T>
void row_gradient(const T* dy, const T* x, int64_t rows, int64_t c, const float* mean, const float* by_dy,
                  const float* by_x, const float* shift, T* dx);

}  // namespace acl_sim
