// npu operators that sample features: gradients of regions of interest, and deformable convolution.

#include <ATen/native/npu/detection/DetectionArgs.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/zeros.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

// `self` is the gradient of the pooled features.
Tensor npu_roi_alignbk(const Tensor& self, const Tensor& rois, IntArrayRef xdiff_shape, int64_t pooled_width,
                       int64_t pooled_height, double spatial_scale, int64_t sample_num,
                       std::optional<int64_t> roi_end_mode) {
  DeviceOf guard(self);
  check_features("npu_roi_alignbk", self);
  check_rois("npu_roi_alignbk", rois);
  check_end_mode("npu_roi_alignbk", roi_end_mode.value_or(1));
  TORCH_CHECK(xdiff_shape.size() == 4, "npu_roi_alignbk: xdiff_shape has 4 numbers, got ", xdiff_shape);
  if (elements(self) == 0) return at::zeros(xdiff_shape, self.options());
  const Tensor dx = new_like(self, xdiff_shape);
  if (dx.is_meta()) return dx;
  OpCommand cmd;
  cmd.Name("ROIAlignGrad").Input(self).Input(rois).Output(dx).Attr("xdiff_shape", xdiff_shape);
  cmd.Attr("pooled_height", pooled_height).Attr("pooled_width", pooled_width).Attr("spatial_scale", spatial_scale);
  cmd.Attr("sample_num", sample_num).Attr("roi_end_mode", roi_end_mode.value_or(1)).Run();
  return dx;
}

// `input_size` is the features' height and width.
Tensor npu_ps_roi_pooling_backward(const Tensor& output_grad, const Tensor& rois, double spatial_scale,
                                   int64_t group_size, int64_t output_dim, IntArrayRef input_size) {
  DeviceOf guard(output_grad);
  check_features("npu_ps_roi_pooling_backward", output_grad);
  const int64_t channels = output_dim * group_size * group_size;
  check_ps("npu_ps_roi_pooling_backward", rois, channels, group_size, output_dim);
  TORCH_CHECK(input_size.size() == 2, "npu_ps_roi_pooling_backward: input_size is height and width, got ", input_size);
  const DimVector sizes = {rois.size(0), channels, input_size[0], input_size[1]};
  if (elements(output_grad) == 0) return at::zeros(sizes, output_grad.options());
  const Tensor dx = new_like(output_grad, sizes);
  if (dx.is_meta()) return dx;
  OpCommand cmd;
  cmd.Name("PSROIPoolingGradV2D").Input(output_grad).Input(rois).Output(dx).Attr("spatial_scale", spatial_scale);
  cmd.Attr("group_size", group_size).Attr("output_dim", output_dim).Attr("input_size", input_size).Run();
  return dx;
}

namespace {

// The arguments of a deformable convolution.
struct Deformable {
  IntArrayRef kernel, stride, padding, dilation;
  int64_t groups;
  bool modulated;

  void check(const Tensor& input, const Tensor& offset) const {
    check_features("npu_deformable_conv2d", input);
    TORCH_CHECK(stride.size() == 4 && padding.size() == 4 && dilation.size() == 4,
                "npu_deformable_conv2d: stride, padding and dilation have 4 numbers, got ", stride, ", ", padding,
                " and ", dilation);
    TORCH_CHECK(input.size(1) % groups == 0, "npu_deformable_conv2d: ", input.size(1), " channels do not divide into ",
                groups, " deformable groups");
    const auto out = [&](int64_t size, int64_t before, int64_t after, size_t k) {
      return (size + before + after - dilation[k + 2] * (kernel[k] - 1) - 1) / stride[k + 2] + 1;
    };
    const int64_t height = out(input.size(2), padding[0], padding[1], 0);
    const int64_t width = out(input.size(3), padding[2], padding[3], 1);
    const int64_t channels = groups * kernel[0] * kernel[1] * 3;
    TORCH_CHECK(offset.sizes() == IntArrayRef({input.size(0), channels, height, width}),
                "npu_deformable_conv2d: offset of shape ", IntArrayRef({input.size(0), channels, height, width}),
                " expected for input ", input.sizes(), ", got ", offset.sizes());
  }
  void attach(OpCommand& cmd) const {
    cmd.Attr("ksize", kernel).Attr("strides", stride).Attr("pads", padding).Attr("dilations", dilation);
    cmd.Attr("data_format", "NCHW").Attr("deformable_groups", groups).Attr("modulated", modulated);
  }
};

}  // namespace

// The sampled windows side by side, then a convolution whose stride is its kernel.
std::tuple<Tensor, Tensor> npu_deformable_conv2d(const Tensor& input, const Tensor& weight, const Tensor& offset,
                                                 const std::optional<Tensor>& bias, IntArrayRef kernel_size,
                                                 IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                                 int64_t groups, int64_t deformable_groups, bool modulated) {
  DeviceOf guard(input);
  const Deformable d{kernel_size, stride, padding, dilation, deformable_groups, modulated};
  d.check(input, offset);
  const Tensor sampled =
      new_like(input, {input.size(0), input.size(1), offset.size(2) * kernel_size[0], offset.size(3) * kernel_size[1]});
  if (!input.is_meta() && sampled.numel() > 0) {
    OpCommand cmd;
    cmd.Name("DeformableOffsets").Input(input).Input(offset).Output(sampled);
    d.attach(cmd);
    cmd.Run();
  }
  return {at::convolution(sampled, weight, bias, kernel_size, IntArrayRef({0, 0}), IntArrayRef({1, 1}), false,
                          IntArrayRef({0, 0}), groups),
          sampled};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> npu_deformable_conv2dbk(const Tensor& input, const Tensor& grad_output,
                                                                   const Tensor& offset_out, const Tensor& weight,
                                                                   const Tensor& offset, IntArrayRef kernel_size,
                                                                   IntArrayRef stride, IntArrayRef padding,
                                                                   IntArrayRef dilation, int64_t groups,
                                                                   int64_t deformable_groups, bool modulated) {
  DeviceOf guard(input);
  const Deformable d{kernel_size, stride, padding, dilation, deformable_groups, modulated};
  d.check(input, offset);
  const auto [dsampled, dweight, dbias] = at::convolution_backward(
      grad_output, offset_out, weight, IntArrayRef(weight.size(0)), kernel_size, IntArrayRef({0, 0}),
      IntArrayRef({1, 1}), false, IntArrayRef({0, 0}), groups, {true, true, true});
  const Tensor dinput = new_like(input), doffset = new_like(offset);
  if (!input.is_meta() && dinput.numel() > 0) {
    OpCommand cmd;
    cmd.Name("DeformableOffsetsGrad").Input(dsampled).Input(input).Input(offset).Output(dinput).Output(doffset);
    d.attach(cmd);
    cmd.Run();
  }
  return {dinput, dweight, doffset, dbias};
}

}  // namespace at::native::npu
