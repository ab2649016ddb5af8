// npu operators of object detectors that are more than one IR operator, or share what they check. The table has the
// others.

#include <ATen/native/npu/detection/DetectionArgs.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/DrawPlace.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/where.h>
#include <NPUCustomFunctions.h>

#include <tuple>

namespace at::native::npu {

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
  check_one_to_one(name, is_cross, self, gtboxes, 1);
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
    const DrawPlace place = next_numbers(x.device(), "npu_random_choice_with_mask draws without a seed");
    seed = place.seed;
    seed2 = place.offset + 1;
  }
  OpCommand cmd;
  cmd.Name("RandomChoiceWithMask").Input(x).Output(index).Output(valid);
  cmd.Attr("count", count).Attr("seed", seed).Attr("seed2", seed2).Run();
  return {index, valid};
}

}  // namespace at::native::npu
