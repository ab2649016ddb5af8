#pragma once
// Arguments of operators over boxes and regions, as their IR operators spell them, and what is refused of them.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <c10/util/Exception.h>
#include <cstdint>

namespace at::native::npu {

inline const char* overlap_mode(int64_t mode) {
  TORCH_CHECK(mode == 0 || mode == 1, "mode is 0 (intersection over union) or 1 (over foreground), got ", mode);
  return mode == 1 ? "iof" : "iou";
}

// ---- Boxes
inline void check_boxes(const char* name, const Tensor& boxes) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, name, ": boxes of shape (n, 4) expected, got ", boxes.sizes());
  check_dtype(boxes.scalar_type(), kDtypeFloat, name);
}

inline void check_pairs(const char* name, const Tensor& a, const Tensor& b) {
  check_boxes(name, a);
  check_boxes(name, b);
  TORCH_CHECK(a.size(0) == b.size(0), name, ": as many boxes on both sides expected, got ", a.sizes(), " and ",
              b.sizes());
}

inline void check_rotated(const char* name, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 3 && a.size(1) == 5 && b.dim() == 3 && b.size(1) == 5 && a.size(0) == b.size(0), name,
              ": rotated boxes of shape (batch, 5, n) expected, got ", a.sizes(), " and ", b.sizes());
  check_single(name, a);
}

inline void check_one_to_one(const char* name, bool is_cross, const Tensor& a, const Tensor& b, int64_t dim) {
  TORCH_CHECK(is_cross || a.size(dim) == b.size(dim), name,
              ": one to one (is_cross=False) needs as many boxes on both sides, got ", a.sizes(), " and ", b.sizes());
}

inline void check_scored(const char* name, const Tensor& boxes) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) >= 5, name, ": boxes and scores of shape (n, 5) expected, got ",
              boxes.sizes());
  check_single(name, boxes);
}

inline void check_scores(const char* name, const Tensor& boxes, const Tensor& scores, const Scalar& most) {
  TORCH_CHECK(scores.dim() == 1 && scores.size(0) == boxes.size(0), name, ": a score per box expected, got ",
              scores.sizes(), " for boxes of shape ", boxes.sizes());
  TORCH_CHECK(most.toLong() >= 0, name, ": max_output_size is at least 0, got ", most);
}

inline void check_batch_nms(const Tensor& boxes, const Tensor& scores, int64_t of_class, int64_t of_image,
                            bool transposed) {
  TORCH_CHECK(boxes.dim() == 4 && scores.dim() == 3 && boxes.size(transposed ? 2 : 3) == 4,
              "npu_batch_nms: boxes of shape (batch, anchors, q, 4), or (batch, q, 4, anchors) with transpose_box, and "
              "scores of shape (batch, anchors, classes) expected, got ",
              boxes.sizes(), " and ", scores.sizes());
  check_single("npu_batch_nms", boxes);
  TORCH_CHECK(of_class > 0 && of_image > 0, "npu_batch_nms: sizes are above 0, got ", of_class, " and ", of_image);
}

inline void check_strides(const char* name, const Tensor& boxes, const Tensor& stride) {
  TORCH_CHECK(stride.dim() == 1 && stride.size(0) == boxes.size(0) && isIntegralType(stride.scalar_type(), false), name,
              ": an integer stride per box expected, got ", stride.scalar_type(), " of shape ", stride.sizes(),
              " for boxes of shape ", boxes.sizes());
}

inline void check_assigned(const char* name, const Tensor& numbers, const Tensor& overlaps) {
  TORCH_CHECK(numbers.dim() == 1 && overlaps.dim() == 2 && overlaps.size(1) == numbers.size(0), name,
              ": self of shape (n) and overlaps of shape (k, n) expected, got ", numbers.sizes(), " and ",
              overlaps.sizes());
}

// ---- Regions of features
inline void check_features(const char* name, const Tensor& x) {
  TORCH_CHECK(x.dim() == 4, name, ": features of shape (n, c, h, w) expected, got ", x.sizes());
  check_single(name, x);
}

inline void check_rois(const char* name, const Tensor& rois) {
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5, name, ": rois of shape (n, 5) expected, got ", rois.sizes());
}

inline void check_end_mode(const char* name, int64_t mode) {
  TORCH_CHECK(mode >= 0 && mode <= 2, name, ": roi_end_mode is 0 (corners as they are), 1 (the last pixel is inside) ",
              "or 2 (aligned by half a pixel), got ", mode);
}

inline void check_ps(const char* name, const Tensor& rois, int64_t channels, int64_t group_size, int64_t output_dim) {
  TORCH_CHECK(rois.dim() == 3 && rois.size(1) == 5, name, ": rois of shape (batch, 5, n) expected, got ", rois.sizes());
  TORCH_CHECK(group_size > 0 && output_dim > 0 && channels == output_dim * group_size * group_size, name, ": ",
              channels, " channels are not output_dim * group_size^2 = ", output_dim, " * ", group_size, "^2");
}

}  // namespace at::native::npu
