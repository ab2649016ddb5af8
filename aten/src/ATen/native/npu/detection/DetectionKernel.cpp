// npu operators of object detectors; each is one IR operator.

#include <ATen/native/npu/detection/DetectionArgs.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/native/npu/random/RandomArgs.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/where.h>
#include <NPUCustomFunctions.h>

#include <tuple>

namespace at::native::npu {
namespace {

void check_boxes(const char* name, const Tensor& boxes) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, name, ": boxes of shape (n, 4) expected, got ", boxes.sizes());
  check_dtype(boxes.scalar_type(), kDtypeFloat, name);
}
void check_pairs(const char* name, const Tensor& a, const Tensor& b) {
  check_boxes(name, a);
  check_boxes(name, b);
  TORCH_CHECK(a.size(0) == b.size(0), name, ": as many boxes on both sides expected, got ", a.sizes(), " and ",
              b.sizes());
}
void check_rotated(const char* name, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 3 && a.size(1) == 5 && b.dim() == 3 && b.size(1) == 5 && a.size(0) == b.size(0), name,
              ": rotated boxes of shape (batch, 5, n) expected, got ", a.sizes(), " and ", b.sizes());
  check_single(name, a);
}

}  // namespace

Tensor npu_bounding_box_decode(const Tensor& rois, const Tensor& deltas, double means0, double means1, double means2,
                               double means3, double stds0, double stds1, double stds2, double stds3,
                               IntArrayRef max_shape, double wh_ratio_clip) {
  DeviceOf guard(rois);
  check_pairs("npu_bounding_box_decode", rois, deltas);
  const Tensor boxes = new_like(rois);
  if (boxes.is_meta() || boxes.numel() == 0) return boxes;
  OpCommand cmd;
  cmd.Name("BoundingBoxDecode").Input(rois).Input(deltas).Output(boxes);
  cmd.Attr("means", ArrayRef<double>({means0, means1, means2, means3}));
  cmd.Attr("stds", ArrayRef<double>({stds0, stds1, stds2, stds3}));
  cmd.Attr("max_shape", max_shape).Attr("wh_ratio_clip", wh_ratio_clip).Run();
  return boxes;
}

Tensor npu_bounding_box_encode(const Tensor& anchor_box, const Tensor& ground_truth_box, double means0, double means1,
                               double means2, double means3, double stds0, double stds1, double stds2, double stds3) {
  DeviceOf guard(anchor_box);
  check_pairs("npu_bounding_box_encode", anchor_box, ground_truth_box);
  const Tensor deltas = new_like(anchor_box);
  if (deltas.is_meta() || deltas.numel() == 0) return deltas;
  OpCommand cmd;
  cmd.Name("BoundingBoxEncode").Input(anchor_box).Input(ground_truth_box).Output(deltas);
  cmd.Attr("means", ArrayRef<double>({means0, means1, means2, means3}));
  cmd.Attr("stds", ArrayRef<double>({stds0, stds1, stds2, stds3})).Run();
  return deltas;
}

static Tensor overlaps(const char* name, const char* ir, const Tensor& bboxes, const Tensor& gtboxes, int64_t mode) {
  DeviceOf guard(bboxes);
  check_boxes(name, bboxes);
  check_boxes(name, gtboxes);
  const char* text = overlap_mode(mode);
  const Tensor result = new_like(bboxes, {gtboxes.size(0), bboxes.size(0)});
  if (result.is_meta() || result.numel() == 0) return result;
  OpCommand cmd;
  cmd.Name(ir).Input(bboxes).Input(gtboxes).Output(result).Attr("mode", text).Run();
  return result;
}
Tensor npu_iou(const Tensor& bboxes, const Tensor& gtboxes, int64_t mode) {
  return overlaps("npu_iou", "Iou", bboxes, gtboxes, mode);
}
Tensor npu_ptiou(const Tensor& bboxes, const Tensor& gtboxes, int64_t mode) {
  return overlaps("npu_ptiou", "PtIou", bboxes, gtboxes, mode);
}

static void check_giou(const char* name, const Tensor& self, const Tensor& gtboxes, bool is_cross) {
  TORCH_CHECK(self.dim() == 2 && self.size(0) == 4 && gtboxes.dim() == 2 && gtboxes.size(0) == 4, name,
              ": boxes of shape (4, n) expected, got ", self.sizes(), " and ", gtboxes.sizes());
  TORCH_CHECK(is_cross || self.size(1) == gtboxes.size(1), name,
              ": one to one (is_cross=False) needs as many boxes on "
              "both sides, got ",
              self.sizes(), " and ", gtboxes.sizes());
  check_dtype(self.scalar_type(), kDtypeFloat, name);
}

// (n, m) for all pairs, (n, 1) one to one.
Tensor npu_giou(const Tensor& self, const Tensor& gtboxes, bool trans, bool is_cross, int64_t mode) {
  DeviceOf guard(self);
  check_giou("npu_giou", self, gtboxes, is_cross);
  const char* text = overlap_mode(mode);
  const Tensor result = new_like(self, {is_cross ? gtboxes.size(1) : 1, self.size(1)});
  if (!result.is_meta() && result.numel() > 0) {
    OpCommand cmd;
    cmd.Name("GIoU").Input(self).Input(gtboxes).Output(result);
    cmd.Attr("trans", trans).Attr("is_cross", is_cross).Attr("mode", text).Run();
  }
  return result.t();
}

std::tuple<Tensor, Tensor> npu_giou_backward(const Tensor& grad, const Tensor& bboxes, const Tensor& gtboxes,
                                             bool trans, bool is_cross, int64_t mode) {
  DeviceOf guard(bboxes);
  check_giou("npu_giou_backward", bboxes, gtboxes, is_cross);
  TORCH_CHECK_NOT_IMPLEMENTED(!is_cross && mode == 0,
                              "npu_giou has a gradient for is_cross=False and mode=0 only, got is_cross=", is_cross,
                              ", mode=", mode);
  const Tensor dbboxes = new_like(bboxes), dgtboxes = new_like(gtboxes);
  if (!dbboxes.is_meta() && dbboxes.numel() > 0) {
    OpCommand cmd;
    cmd.Name("GIoUGrad").Input(grad.reshape({-1})).Input(bboxes).Input(gtboxes).Output(dbboxes).Output(dgtboxes);
    cmd.Attr("trans", trans).Attr("is_cross", is_cross).Attr("mode", "iou").Run();
  }
  return {dbboxes, dgtboxes};
}

std::tuple<Tensor, Tensor, Tensor> npu_nms_with_mask(const Tensor& input, const Scalar& iou_threshold) {
  DeviceOf guard(input);
  TORCH_CHECK(input.dim() == 2 && input.size(1) >= 5,
              "npu_nms_with_mask: boxes and scores of shape (n, 5) expected, "
              "got ",
              input.sizes());
  check_single("npu_nms_with_mask", input);
  const int64_t n = input.size(0);
  const Tensor boxes = new_like(input, {n, 5}), index = new_like(input, {n}, kInt), mask = new_like(input, {n}, kByte);
  if (!input.is_meta() && n > 0) {
    OpCommand cmd;
    cmd.Name("NMSWithMask").Input(input).Output(boxes).Output(index).Output(mask);
    cmd.Attr("iou_threshold", iou_threshold.toDouble()).Run();
  }
  return {boxes, index, mask};
}

std::tuple<Tensor, Tensor> npu_nms_v4(const Tensor& self, const Tensor& scores, const Scalar& max_output_size,
                                      const Tensor& iou_threshold, const Tensor& scores_threshold,
                                      bool pad_to_max_output_size) {
  DeviceOf guard(self);
  check_boxes("npu_nms_v4", self);
  check_single("npu_nms_v4", self);
  TORCH_CHECK(scores.dim() == 1 && scores.size(0) == self.size(0), "npu_nms_v4: a score per box expected, got ",
              scores.sizes(), " for boxes of shape ", self.sizes());
  const int64_t most = max_output_size.toLong();
  TORCH_CHECK(most >= 0, "npu_nms_v4: max_output_size is at least 0, got ", most);
  const Tensor index = new_like(self, {most}, kInt), count = new_like(self, {}, kInt);
  if (!self.is_meta()) {
    OpCommand cmd;
    cmd.Name("NonMaxSuppressionV4").Input(self).Input(scores).Input(max_output_size, kInt);
    cmd.Input(iou_threshold).Input(scores_threshold).Output(index).Output(count);
    cmd.Attr("pad_to_max_output_size", pad_to_max_output_size).Run();
  }
  return {index, count};
}

// How many are selected is known on the device: the indices are cut to that number.
std::tuple<Tensor, Tensor> npu_nms_rotated(const Tensor& self, const Tensor& scores, double iou_threshold,
                                           double scores_threshold, int64_t max_output_size, int64_t mode) {
  DeviceOf guard(self);
  TORCH_CHECK(self.dim() == 2 && self.size(1) == 5 && scores.dim() == 1 && scores.size(0) == self.size(0),
              "npu_nms_rotated: boxes of shape (n, 5) and n scores expected, got ", self.sizes(), " and ",
              scores.sizes());
  check_single("npu_nms_rotated", self);
  TORCH_CHECK(mode == 0 || mode == 1, "npu_nms_rotated: mode is 0 (x, y, w, h, angle) or 1 (corners, angle), got ",
              mode);
  const Tensor index = new_like(self, {self.size(0)}, kInt), count = new_like(self, {1}, kInt);
  if (self.is_meta()) return {index, count};
  OpCommand cmd;
  cmd.Name("RotatedNmsLimited").Input(self).Input(scores).Output(index).Output(count);
  cmd.Attr("iou_threshold", iou_threshold).Attr("scores_threshold", scores_threshold);
  cmd.Attr("max_output_size", max_output_size).Attr("mode", mode).Run();
  return {index.narrow(0, 0, count.item<int64_t>()).clone(), count};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> npu_batch_nms(const Tensor& self, const Tensor& scores,
                                                         double score_threshold, double iou_threshold,
                                                         int64_t max_size_per_class, int64_t max_total_size,
                                                         bool change_coordinate_frame, bool transpose_box) {
  DeviceOf guard(self);
  TORCH_CHECK(self.dim() == 4 && scores.dim() == 3 && self.size(transpose_box ? 2 : 3) == 4,
              "npu_batch_nms: boxes of shape (batch, anchors, q, 4), or (batch, q, 4, anchors) with transpose_box, and "
              "scores of shape (batch, anchors, classes) expected, got ",
              self.sizes(), " and ", scores.sizes());
  check_single("npu_batch_nms", self);
  TORCH_CHECK(max_size_per_class > 0 && max_total_size > 0, "npu_batch_nms: sizes are above 0, got ",
              max_size_per_class, " and ", max_total_size);
  const int64_t batch = self.size(0);
  const Tensor boxes = new_like(self, {batch, max_total_size, 4}), best = new_like(self, {batch, max_total_size});
  const Tensor classes = new_like(self, {batch, max_total_size}), count = new_like(self, {batch}, kInt);
  if (!self.is_meta() && batch > 0) {
    OpCommand cmd;
    cmd.Name("BatchMultiClassNonMaxSuppression").Input(self).Input(scores);
    cmd.Output(boxes).Output(best).Output(classes).Output(count);
    cmd.Attr("score_threshold", score_threshold).Attr("iou_threshold", iou_threshold);
    cmd.Attr("max_size_per_class", max_size_per_class).Attr("max_total_size", max_total_size);
    cmd.Attr("change_coordinate_frame", change_coordinate_frame).Attr("transpose_box", transpose_box).Run();
  }
  return {boxes, best, classes, count};
}

Tensor npu_rotated_overlaps(const Tensor& self, const Tensor& query_boxes, bool trans) {
  DeviceOf guard(self);
  check_rotated("npu_rotated_overlaps", self, query_boxes);
  const Tensor result = new_like(self, {self.size(0), self.size(2), query_boxes.size(2)});
  if (result.is_meta() || result.numel() == 0) return result;
  OpCommand cmd;
  cmd.Name("RotatedOverlaps").Input(self).Input(query_boxes).Output(result).Attr("trans", trans).Run();
  return result;
}

Tensor npu_rotated_iou(const Tensor& self, const Tensor& query_boxes, bool trans, int64_t mode, bool is_cross,
                       double v_threshold, double e_threshold) {
  DeviceOf guard(self);
  check_rotated("npu_rotated_iou", self, query_boxes);
  TORCH_CHECK(is_cross || self.size(2) == query_boxes.size(2),
              "npu_rotated_iou: one to one (is_cross=False) needs as "
              "many boxes on both sides, got ",
              self.sizes(), " and ", query_boxes.sizes());
  const char* text = overlap_mode(mode);
  const Tensor result = is_cross ? new_like(self, {self.size(0), self.size(2), query_boxes.size(2)})
                                 : new_like(self, {self.size(0), self.size(2)});
  if (result.is_meta() || result.numel() == 0) return result;
  OpCommand cmd;
  cmd.Name("RotatedIou").Input(self).Input(query_boxes).Output(result).Attr("trans", trans).Attr("mode", text);
  cmd.Attr("is_cross", is_cross).Attr("v_threshold", v_threshold).Attr("e_threshold", e_threshold).Run();
  return result;
}

// The weights are an attribute of the IR operator, so they come to the host.
static Tensor recode(const char* name, const char* ir, const Tensor& self, const Tensor& other, const Tensor& weight) {
  DeviceOf guard(self);
  check_rotated(name, self, other);
  TORCH_CHECK(self.size(2) == other.size(2) && elements(weight) == 5, name,
              ": as many boxes on both sides and 5 weights "
              "expected, got ",
              self.sizes(), ", ", other.sizes(), " and weights of shape ", weight.sizes());
  const Tensor result = new_like(self);
  if (result.is_meta() || result.numel() == 0) return result;
  const Tensor host = weight.to(kCPU, kDouble).contiguous();
  OpCommand cmd;
  cmd.Name(ir).Input(self).Input(other).Output(result);
  cmd.Attr("weight", ArrayRef<double>(host.const_data_ptr<double>(), 5)).Run();
  return result;
}
Tensor npu_rotated_box_encode(const Tensor& self, const Tensor& gt_bboxes, const Tensor& weight) {
  return recode("npu_rotated_box_encode", "RotatedBoxEncode", self, gt_bboxes, weight);
}
Tensor npu_rotated_box_decode(const Tensor& self, const Tensor& deltas, const Tensor& weight) {
  return recode("npu_rotated_box_decode", "RotatedBoxDecode", self, deltas, weight);
}

Tensor npu_yolo_boxes_encode(const Tensor& self, const Tensor& gt_bboxes, const Tensor& stride, bool performance_mode) {
  DeviceOf guard(self);
  check_pairs("npu_yolo_boxes_encode", self, gt_bboxes);
  TORCH_CHECK(stride.dim() == 1 && stride.size(0) == self.size(0) && isIntegralType(stride.scalar_type(), false),
              "npu_yolo_boxes_encode: an integer stride per box expected, got ", stride.scalar_type(), " of shape ",
              stride.sizes(), " for boxes of shape ", self.sizes());
  const Tensor result = new_like(self);
  if (result.is_meta() || result.numel() == 0) return result;
  OpCommand cmd;
  cmd.Name("YoloBoxesEncode").Input(self).Input(gt_bboxes).Input(stride).Output(result);
  cmd.Attr("performance_mode", performance_mode ? "high_performance" : "high_precision").Run();
  return result;
}

Tensor npu_anchor_response_flags(const Tensor& self, IntArrayRef featmap_size, IntArrayRef stride,
                                 int64_t num_base_anchors) {
  DeviceOf guard(self);
  check_boxes("npu_anchor_response_flags", self);
  const Tensor result = new_like(self, {featmap_size[0] * featmap_size[1] * num_base_anchors}, kByte);
  if (result.is_meta() || result.numel() == 0) return result;
  OpCommand cmd;
  cmd.Name("AnchorResponseFlags").Input(self).Output(result).Attr("featmap_size", featmap_size);
  cmd.Attr("strides", stride).Attr("num_base_anchors", num_base_anchors).Run();
  return result;
}

Tensor npu_grid_assign_positive(const Tensor& self, const Tensor& overlaps, const Tensor& box_responsible_flags,
                                const Tensor& max_overlaps, const Tensor& argmax_overlaps,
                                const Tensor& gt_max_overlaps, const Tensor& gt_argmax_overlaps, int64_t num_gts,
                                double pos_iou_thr, double min_pos_iou, bool gt_max_assign_all) {
  DeviceOf guard(self);
  TORCH_CHECK(self.dim() == 1 && overlaps.dim() == 2 && overlaps.size(1) == self.size(0),
              "npu_grid_assign_positive: self of shape (n) and overlaps of shape (k, n) expected, got ", self.sizes(),
              " and ", overlaps.sizes());
  const Tensor result = new_like(self);
  if (result.is_meta() || result.numel() == 0) return result;
  OpCommand cmd;
  cmd.Name("GridAssignPositive").Input(self).Input(overlaps).Input(box_responsible_flags).Input(max_overlaps);
  cmd.Input(argmax_overlaps).Input(gt_max_overlaps).Input(gt_argmax_overlaps).Input(IntArrayRef(num_gts));
  cmd.Output(result).Attr("pos_iou_thr", pos_iou_thr).Attr("min_pos_iou", min_pos_iou);
  cmd.Attr("gt_max_assign_all", gt_max_assign_all).Run();
  return result;
}

// Keeps at most per_images labels at random, of them at most that fraction positive (1); the rest becomes -1.
Tensor npu_sub_sample(const Tensor& self, int64_t per_images, double positive_fraction) {
  TORCH_CHECK(self.dim() == 1 && self.scalar_type() == kInt, "npu_sub_sample: int32 labels of shape (n) expected, got ",
              self.scalar_type(), " of shape ", self.sizes());
  if (self.is_meta()) return new_like(self);
  // Positives first, then negatives, each in random order: the rank in this order decides.
  const Tensor order = at::rand(self.sizes(), self.options().dtype(kFloat));
  const Tensor positive = self.eq(1), negative = self.eq(0);
  const auto rank = [&](const Tensor& of) { return order.masked_fill(of.logical_not(), 2).argsort().argsort(); };
  const auto most = static_cast<int64_t>(static_cast<double>(per_images) * positive_fraction);
  const Tensor chosen = at::count_nonzero(positive).clamp_max(most);
  const Tensor kept = positive.logical_and(rank(positive).lt(chosen))
                          .logical_or(negative.logical_and(rank(negative).lt(chosen.neg().add(per_images))));
  return at::where(kept, self, -1).to(kInt);
}

// Both seeds 0 stand for a new place in the generator's sequence.
std::tuple<Tensor, Tensor> npu_random_choice_with_mask(const Tensor& x, int64_t count, int64_t seed, int64_t seed2) {
  DeviceOf guard(x);
  TORCH_CHECK(x.dim() >= 1 && count >= 0,
              "npu_random_choice_with_mask: a tensor with dimensions and a count of at least 0 expected, got shape ",
              x.sizes(), " and count ", count);
  TORCH_CHECK(count > 0 || !x.is_meta(),
              "npu_random_choice_with_mask: count=0 chooses all non-zero elements, whose "
              "number depends on the data");
  const int64_t rows = count > 0 ? count : at::count_nonzero(x).item<int64_t>();
  const Tensor index = new_like(x, {rows, x.dim()}, kInt), valid = new_like(x, {rows}, kBool);
  if (x.is_meta() || rows == 0) return {index, valid};
  if (seed == 0 && seed2 == 0) {
    const DrawPlace place = next_place(x.device());
    seed = place.seed;
    seed2 = place.offset + 1;
  }
  OpCommand cmd;
  cmd.Name("RandomChoiceWithMask").Input(x).Output(index).Output(valid);
  cmd.Attr("count", count).Attr("seed", seed).Attr("seed2", seed2).Run();
  return {index, valid};
}

}  // namespace at::native::npu
