// Gradients of the npu operators that sample features and compare boxes.

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>

namespace at::native::npu {
namespace {

using std::vector;

bool needs_grad(const Tensor& a, const Tensor& b) {
  return at::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad());
}

// The formula of npu_iou made of differentiable operators, for boxes that a gradient is wanted of.
Tensor overlaps_with_gradient(const Tensor& bboxes, const Tensor& gtboxes, int64_t mode) {
  const Tensor b = bboxes.unsqueeze(0), g = gtboxes.unsqueeze(1);
  const Tensor size =
      (at::minimum(b.narrow(2, 2, 2), g.narrow(2, 2, 2)) - at::maximum(b.narrow(2, 0, 2), g.narrow(2, 0, 2)))
          .clamp_min(0);
  const Tensor inner = size.select(2, 0) * size.select(2, 1);
  const auto area = [](const Tensor& t) {
    return (t.select(2, 2) - t.select(2, 0)) * (t.select(2, 3) - t.select(2, 1));
  };
  const Tensor whole = mode == 1 ? area(g).expand_as(inner) : area(b) + area(g) - inner;
  // The division must not see a zero, or its gradient would be no number.
  return at::where(whole > 0, inner / at::where(whole > 0, whole, 1), 0);
}

struct Giou : Function<Giou> {
  static Tensor forward(AutogradContext* ctx, const Tensor& self, const Tensor& gtboxes, bool trans, bool is_cross,
                        int64_t mode) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({self, gtboxes});
    ctx->saved_data["trans"] = trans;
    ctx->saved_data["is_cross"] = is_cross;
    ctx->saved_data["mode"] = mode;
    return NPU_CUSTOM_OP(npu_giou, "npu_giou", "").call(self, gtboxes, trans, is_cross, mode);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto [dself, dgtboxes] = NPU_CUSTOM_OP(npu_giou_backward, "npu_giou_backward", "")
                                       .call(grads[0], saved[0], saved[1], ctx->saved_data["trans"].toBool(),
                                             ctx->saved_data["is_cross"].toBool(), ctx->saved_data["mode"].toInt());
    return {dself, dgtboxes, {}, {}, {}};
  }
};

struct DeformableConv2d : Function<DeformableConv2d> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& weight, const Tensor& offset,
                               const std::optional<Tensor>& bias, IntArrayRef kernel, IntArrayRef stride,
                               IntArrayRef padding, IntArrayRef dilation, int64_t groups, int64_t deformable_groups,
                               bool modulated) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->saved_data["kernel"] = kernel;
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    ctx->saved_data["dilation"] = dilation;
    ctx->saved_data["groups"] = groups;
    ctx->saved_data["deformable_groups"] = deformable_groups;
    ctx->saved_data["modulated"] = modulated;
    ctx->saved_data["bias"] = bias.has_value() && bias->defined();
    const auto [y, sampled] =
        NPU_CUSTOM_OP(npu_deformable_conv2d, "npu_deformable_conv2d", "")
            .call(input, weight, offset, bias, kernel, stride, padding, dilation, groups, deformable_groups, modulated);
    ctx->save_for_backward({input, weight, offset, sampled});
    ctx->mark_non_differentiable({sampled});
    return {y, sampled};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    const auto kernel = data["kernel"].toIntVector(), stride = data["stride"].toIntVector();
    const auto padding = data["padding"].toIntVector(), dilation = data["dilation"].toIntVector();
    const auto [dinput, dweight, doffset, dbias] =
        NPU_CUSTOM_OP(npu_deformable_conv2dbk, "npu_deformable_conv2dbk", "")
            .call(saved[0], grads[0], saved[3], saved[1], saved[2], kernel, stride, padding, dilation,
                  data["groups"].toInt(), data["deformable_groups"].toInt(), data["modulated"].toBool());
    return {dinput, dweight, doffset, data["bias"].toBool() ? dbias : Tensor(), {}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

Tensor npu_iou_autograd(const Tensor& bboxes, const Tensor& gtboxes, int64_t mode) {
  if (needs_grad(bboxes, gtboxes)) return overlaps_with_gradient(bboxes, gtboxes, mode);
  const at::AutoDispatchBelowADInplaceOrView below;
  return NPU_CUSTOM_OP(npu_iou, "npu_iou", "").call(bboxes, gtboxes, mode);
}

Tensor npu_ptiou_autograd(const Tensor& bboxes, const Tensor& gtboxes, int64_t mode) {
  if (needs_grad(bboxes, gtboxes)) return overlaps_with_gradient(bboxes, gtboxes, mode);
  const at::AutoDispatchBelowADInplaceOrView below;
  return NPU_CUSTOM_OP(npu_ptiou, "npu_ptiou", "").call(bboxes, gtboxes, mode);
}

Tensor npu_bounding_box_decode_autograd(const Tensor& rois, const Tensor& deltas, double means0, double means1,
                                        double means2, double means3, double stds0, double stds1, double stds2,
                                        double stds3, IntArrayRef max_shape, double wh_ratio_clip) {
  if (!needs_grad(rois, deltas)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return NPU_CUSTOM_OP(npu_bounding_box_decode, "npu_bounding_box_decode", "")
        .call(rois, deltas, means0, means1, means2, means3, stds0, stds1, stds2, stds3, max_shape, wh_ratio_clip);
  }
  // Both directions at once, x in column 0 and y in column 1.
  const auto scaled = [&](int64_t at, double std0, double std1, double mean0, double mean1) {
    const Tensor part = deltas.narrow(1, at, 2);
    if (std0 == std1 && mean0 == mean1) return std0 == 1 && mean0 == 0 ? part : part * std0 + mean0;
    return at::stack({part.select(1, 0) * std0 + mean0, part.select(1, 1) * std1 + mean1}, 1);
  };
  const double limit = std::abs(std::log(wh_ratio_clip));
  const Tensor low = rois.narrow(1, 0, 2), high = rois.narrow(1, 2, 2), size = high - low + 1;
  const Tensor centre = (low + high) * 0.5 + size * scaled(0, stds0, stds1, means0, means1);
  const Tensor half = size * scaled(2, stds2, stds3, means2, means3).clamp(-limit, limit).exp() * 0.5 - 0.5;
  const Tensor boxes = at::cat({centre - half, centre + half}, 1);
  if (max_shape.empty()) return boxes;
  const int64_t width = max_shape.back(), height = max_shape.front();
  if (width == height) return boxes.clamp(0, width - 1);
  const auto inside = [&](int64_t i) { return boxes.select(1, i).clamp(0, (i % 2 == 0 ? width : height) - 1); };
  return at::stack({inside(0), inside(1), inside(2), inside(3)}, 1);
}

Tensor npu_giou_autograd(const Tensor& self, const Tensor& gtboxes, bool trans, bool is_cross, int64_t mode) {
  return Giou::apply(self, gtboxes, trans, is_cross, mode);
}

std::tuple<Tensor, Tensor> npu_deformable_conv2d_autograd(const Tensor& input, const Tensor& weight,
                                                          const Tensor& offset, const std::optional<Tensor>& bias,
                                                          IntArrayRef kernel_size, IntArrayRef stride,
                                                          IntArrayRef padding, IntArrayRef dilation, int64_t groups,
                                                          int64_t deformable_groups, bool modulated) {
  const auto out = DeformableConv2d::apply(input, weight, offset, bias, kernel_size, stride, padding, dilation, groups,
                                           deformable_groups, modulated);
  return {out[0], out[1]};
}

}  // namespace at::native::npu
