#pragma once
// Batch normalisation in fp32 over rows of channels: x[rows, c], as channels-last images and 2-D inputs are stored.
// Statistics are taken block by block around each block's own mean and joined in double, so neither the block's order
// of execution nor a large mean costs digits, and results do not depend on the number of threads.

#include <cstdint>

namespace acl_sim {

// mean[c] and the sum of squared deviations m2[c].
void row_statistics(const float* x, int64_t rows, int64_t c, double* mean, double* m2);

// y = (x - mean) * scale + shift
void row_normalize(const float* x, int64_t rows, int64_t c, const float* mean, const float* scale, const float* shift,
                   float* y);

// sum_dy[c] = sum of dy, sum_dy_x[c] = sum of dy * (x - mean)
void row_gradient_sums(const float* dy, const float* x, int64_t rows, int64_t c, const float* mean, double* sum_dy,
                       double* sum_dy_x);

// dx = dy * by_dy + (x - mean) * by_x + shift; with x null: dx = dy * by_dy
void row_gradient(const float* dy, const float* x, int64_t rows, int64_t c, const float* mean, const float* by_dy,
                  const float* by_x, const float* shift, float* dx);

}  // namespace acl_sim
