#pragma once
// Loops over rows of a tile of scores. Numbers may lie anywhere; nothing outside of the n given ones is touched.

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace acl_sim {

// Multiplies, and gives the greatest product; -inf where there is none.
float scaled_max(float* x, int64_t n, float factor);

// x = exp(x - max), whose sum it gives.
float exponentials(float* x, int64_t n, float max);

void scale_row(float* x, int64_t n, float factor);
void add_to_row(float* x, const float* y, int64_t n, float factor);  // x += factor * y

// Turns scores and gradients of weights into weights and gradients of scores:
//   x = exp(scale * x - max) * share, g = x * (g - mean) * factor
void gradient_row(float* x, float* g, int64_t n, float scale, float max, float share, float mean, float factor);

float dot(const float* x, const float* y, int64_t n);

// Every `step`-th of the numbers of a floating type, from element `first` on; a step is 0 or 1.
void read_row(const void* from, c10::ScalarType type, int64_t first, int64_t step, int64_t n, float* to);

// -inf where the mask says that a pair is hidden. A step is 0 or 1.
void hide_row(float* x, const uint8_t* mask, int64_t step, int64_t n, bool shows);

// Multiplies what bits keep with `factor`, and the others with 0.
void drop_row(float* x, const uint8_t* bits, int64_t first, int64_t n, float factor);

}  // namespace acl_sim
