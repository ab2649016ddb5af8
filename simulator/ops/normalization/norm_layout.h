#pragma once
// How the device keeps an operand that is normalised by channel, and what both ways of keeping it have kernels for.

#include "ops/nn_util.h"
#include "ops/normalization/norm_planes.h"
#include "ops/normalization/norm_rows.h"

namespace acl_sim {

// Rows of channels (channels-last images, which the host may also send as images of one pixel, inputs of two
// dimensions), or planes (whatever else is contiguous).
struct NormLayout {
  bool rows;
  Planes shape;

  explicit NormLayout(const at::Tensor& x)
      : rows(false), shape{x.size(0), x.size(1), x.numel() / (x.size(0) * x.size(1))} {
    rows = shape.area == 1 || stored_channels_last(x);
  }

  int64_t row_count() const { return shape.outer * shape.area; }

  template <class T>
  void statistics(const T* x, double* mean, double* m2) const {
    rows ? row_statistics(x, row_count(), shape.c, mean, m2) : plane_statistics(x, shape, mean, m2);
  }
  template <class T>
  void normalize(const T* x, const float* mean, const float* scale, const float* shift, T* y) const {
    rows ? row_normalize(x, row_count(), shape.c, mean, scale, shift, y)
         : plane_normalize(x, shape, mean, scale, shift, y);
  }
  template <class T>
  void gradient_sums(const T* dy, const T* x, const float* mean, double* sum_dy, double* sum_dy_x) const {
    rows ? row_gradient_sums(dy, x, row_count(), shape.c, mean, sum_dy, sum_dy_x)
         : plane_gradient_sums(dy, x, shape, mean, sum_dy, sum_dy_x);
  }
  template <class T>
  void gradient(const T* dy, const T* x, const float* mean, const float* by_dy, const float* by_x, const float* shift,
                T* dx) const {
    rows ? row_gradient(dy, x, row_count(), shape.c, mean, by_dy, by_x, shift, dx)
         : plane_gradient(dy, x, shape, mean, by_dy, by_x, shift, dx);
  }
};

// body(pointer of the element type).
template <class Body>
void with_element_type(const at::Tensor& t, const Body& body) {
  if (t.scalar_type() == at::kFloat) {
    body(static_cast<float*>(nullptr));
  } else if (t.scalar_type() == at::kBFloat16) {
    body(static_cast<c10::BFloat16*>(nullptr));
  } else {
    body(static_cast<c10::Half*>(nullptr));
  }
}

// True if kernels of our own compute it: in fp32, from fp32 or narrower memory.
inline bool normalizes_here(const at::Tensor& x) {
  return (x.scalar_type() == at::kFloat || is_low_precision(x)) && x.dim() >= 2 && x.numel() > 0;
}

// Input i laid out as the tensor that is normalised.
inline at::Tensor normalized_in(OpContext& c, size_t i, const at::Tensor& as) {
  return stored_channels_last(as) ? c.in_channels_last(i) : c.in(i);
}

// A per-channel operand as fp32, or `otherwise` where absent.
std::vector<float> channel_values(OpContext& c, size_t i, int64_t channels, float otherwise);

inline void write_values(const at::Tensor& target, const std::vector<double>& values) {
  target.copy_(at::from_blob(const_cast<double*>(values.data()), target.sizes(), at::kDouble));
}

}  // namespace acl_sim
