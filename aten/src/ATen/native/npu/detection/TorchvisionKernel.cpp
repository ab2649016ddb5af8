// torchvision's operators on npu, and on the CPU where torchvision's own cannot be loaded. They are registered here
// without schemas; those come from torchvision's binary, or from torch/_torchvision_ops.py in its place. The autograd
// formulas are torchvision's own.

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/HostKernels.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/registration/OrCpu.h>
#include <ATen/npu/TorchvisionOnCpu.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

namespace at::native::npu {
namespace {

Tensor fresh(IntArrayRef sizes, ScalarType dtype, Device device) {
  return device.is_cpu() ? at::empty(sizes, TensorOptions().dtype(dtype).device(device))
                         : empty_npu(sizes, dtype, device);
}

void check_same(const char* name, const char* what, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.device() == b.device(), name, ": ", what, " are on different devices, ", a.device(), " and ",
              b.device());
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name, ": ", what, " must have the same dtype, but have ",
              a.scalar_type(), " and ", b.scalar_type());
}

// Features or their gradient, and the regions.
void check_regions(const char* name, const Tensor& features, const Tensor& rois, int64_t rows, int64_t columns) {
  check_dtype(features.scalar_type(), kDtypeFloat, name);
  TORCH_CHECK(features.dim() == 4, name, ": expected features [N, C, H, W], but got ", features.sizes());
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5, name, ": rois must have shape as Tensor[K, 5], but got ",
              rois.sizes());
  TORCH_CHECK(rows > 0 && columns > 0, name, ": the pooled size must be positive, but is ", rows, " x ", columns);
  check_same(name, "input and rois", features, rois);
}

void check_sensitive(const char* name, int64_t channels, int64_t rows, int64_t columns) {
  TORCH_CHECK(channels % (rows * columns) == 0, name,
              ": input channels must be a multiple of pooling height * pooling width, but ", channels,
              " is no multiple of ", rows, " * ", columns);
}

// How a region is cut into cells.
struct Cells {
  double scale;
  int64_t rows, columns;
  std::optional<int64_t> ratio = std::nullopt;
  bool aligned = false;

  void attach(AnyCommand& cmd) const {
    cmd.Attr("pooled_height", rows).Attr("pooled_width", columns);
    if (ratio.has_value()) {
      cmd.Attr("sample_num", *ratio).Attr("aligned", aligned);
    }
  }
};

// `mapping`: a second, int32 output.
std::tuple<Tensor, Tensor> pooled(const char* ir, const Tensor& x, const Tensor& rois, const Cells& cells,
                                  int64_t channels, bool mapping) {
  const DimVector sizes = {rois.size(0), channels, cells.rows, cells.columns};
  const Tensor y = fresh(sizes, x.scalar_type(), x.device());
  const Tensor second = mapping ? fresh(sizes, kInt, x.device()) : Tensor();
  if (y.numel() > 0) {
    AnyCommand cmd(x.device(), ir);
    cmd.Input(x).Input(rois).Input(Scalar(cells.scale), kDouble).Output(y);
    if (mapping) {
      cmd.Output(second);
    }
    cells.attach(cmd);
    cmd.Run();
  }
  return {y, second};
}

Tensor pooled_grad(const char* ir, const Tensor& grad, const Tensor& rois, const Cells& cells, IntArrayRef sizes) {
  if (grad.numel() == 0) {
    return at::zeros(sizes, grad.options());
  }
  const Tensor dx = fresh(sizes, grad.scalar_type(), grad.device());
  if (dx.numel() > 0) {
    AnyCommand cmd(grad.device(), ir);
    cmd.Input(grad).Input(rois).Input(Scalar(cells.scale), kDouble).Output(dx);
    cells.attach(cmd);
    cmd.Run();
  }
  return dx;
}

Tensor roi_align(const Tensor& input, const Tensor& rois, double spatial_scale, int64_t pooled_height,
                 int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  DeviceOf guard(input);
  check_regions("roi_align", input, rois, pooled_height, pooled_width);
  const Cells cells{spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned};
  return std::get<0>(pooled("RoiAlignV2", input, rois, cells, input.size(1), false));
}

Tensor roi_align_backward(const Tensor& grad, const Tensor& rois, double spatial_scale, int64_t pooled_height,
                          int64_t pooled_width, int64_t batch_size, int64_t channels, int64_t height, int64_t width,
                          int64_t sampling_ratio, bool aligned) {
  DeviceOf guard(grad);
  check_regions("_roi_align_backward", grad, rois, pooled_height, pooled_width);
  const Cells cells{spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned};
  return pooled_grad("RoiAlignV2Grad", grad, rois, cells, {batch_size, channels, height, width});
}

std::tuple<Tensor, Tensor> ps_roi_align(const Tensor& input, const Tensor& rois, double spatial_scale,
                                        int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio) {
  DeviceOf guard(input);
  check_regions("ps_roi_align", input, rois, pooled_height, pooled_width);
  check_sensitive("ps_roi_align", input.size(1), pooled_height, pooled_width);
  const Cells cells{spatial_scale, pooled_height, pooled_width, sampling_ratio};
  return pooled("PSROIAlign", input, rois, cells, input.size(1) / (pooled_height * pooled_width), true);
}

Tensor ps_roi_align_backward(const Tensor& grad, const Tensor& rois, const Tensor&, double spatial_scale,
                             int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio, int64_t batch_size,
                             int64_t channels, int64_t height, int64_t width) {
  DeviceOf guard(grad);
  check_regions("_ps_roi_align_backward", grad, rois, pooled_height, pooled_width);
  const Cells cells{spatial_scale, pooled_height, pooled_width, sampling_ratio};
  return pooled_grad("PSROIAlignGrad", grad, rois, cells, {batch_size, channels, height, width});
}

std::tuple<Tensor, Tensor> roi_pool(const Tensor& input, const Tensor& rois, double spatial_scale,
                                    int64_t pooled_height, int64_t pooled_width) {
  DeviceOf guard(input);
  check_regions("roi_pool", input, rois, pooled_height, pooled_width);
  return pooled("RoiPoolingWithArgMax", input, rois, {spatial_scale, pooled_height, pooled_width}, input.size(1), true);
}

Tensor roi_pool_backward(const Tensor& grad, const Tensor& rois, const Tensor& argmax, double, int64_t pooled_height,
                         int64_t pooled_width, int64_t batch_size, int64_t channels, int64_t height, int64_t width) {
  DeviceOf guard(grad);
  check_regions("_roi_pool_backward", grad, rois, pooled_height, pooled_width);
  TORCH_CHECK(argmax.sizes() == grad.sizes() && argmax.scalar_type() == kInt && argmax.device() == grad.device(),
              "_roi_pool_backward: argmax must be int32 of the gradient's sizes ", grad.sizes(), ", but is ",
              argmax.scalar_type(), " of ", argmax.sizes());
  const DimVector sizes = {batch_size, channels, height, width};
  if (grad.numel() == 0) {
    return at::zeros(sizes, grad.options());
  }
  const Tensor dx = fresh(sizes, grad.scalar_type(), grad.device());
  if (dx.numel() > 0) {
    AnyCommand cmd(grad.device(), "RoiPoolingGradWithArgMax");
    cmd.Input(grad).Input(rois).Input(argmax).Output(dx).Run();
  }
  return dx;
}

std::tuple<Tensor, Tensor> ps_roi_pool(const Tensor& input, const Tensor& rois, double spatial_scale,
                                       int64_t pooled_height, int64_t pooled_width) {
  DeviceOf guard(input);
  check_regions("ps_roi_pool", input, rois, pooled_height, pooled_width);
  check_sensitive("ps_roi_pool", input.size(1), pooled_height, pooled_width);
  return pooled("PSROIPooling", input, rois, {spatial_scale, pooled_height, pooled_width},
                input.size(1) / (pooled_height * pooled_width), true);
}

Tensor ps_roi_pool_backward(const Tensor& grad, const Tensor& rois, const Tensor&, double spatial_scale,
                            int64_t pooled_height, int64_t pooled_width, int64_t batch_size, int64_t channels,
                            int64_t height, int64_t width) {
  DeviceOf guard(grad);
  check_regions("_ps_roi_pool_backward", grad, rois, pooled_height, pooled_width);
  return pooled_grad("PSROIPoolingGrad", grad, rois, {spatial_scale, pooled_height, pooled_width},
                     {batch_size, channels, height, width});
}

// ---- Deformable convolution ----

struct DeformParams {
  std::array<int64_t, 2> stride, pad, dilation;
  int64_t groups, offset_groups;

  DimVector check(const Tensor& x, const Tensor& w, const Tensor& offset, const Tensor& mask, bool use_mask) const {
    constexpr const char* kName = "deform_conv2d";
    check_dtype(x.scalar_type(), kDtypeFloat, kName);
    TORCH_CHECK(x.dim() == 4 && w.dim() == 4 && offset.dim() == 4 && (!use_mask || mask.dim() == 4), kName,
                ": input, weight, offset and mask must have 4 dimensions, but have sizes ", x.sizes(), ", ", w.sizes(),
                ", ", offset.sizes(), " and ", mask.sizes());
    check_same(kName, "input and weight", x, w);
    check_same(kName, "input and offset", x, offset);
    if (use_mask) {
      check_same(kName, "input and mask", x, mask);
    }
    TORCH_CHECK(w.size(2) > 0 && w.size(3) > 0, "weight_h: ", w.size(2), " weight_w: ", w.size(3));
    TORCH_CHECK(stride[0] > 0 && stride[1] > 0, "stride_h: ", stride[0], " stride_w: ", stride[1]);
    TORCH_CHECK(pad[0] >= 0 && pad[1] >= 0, "pad_h: ", pad[0], " pad_w: ", pad[1]);
    TORCH_CHECK(dilation[0] > 0 && dilation[1] > 0, "dilation_h: ", dilation[0], " dilation_w: ", dilation[1]);
    TORCH_CHECK(groups > 0 && w.size(1) * groups == x.size(1) && w.size(0) % groups == 0, kName, ": input ", x.sizes(),
                " and weight ", w.sizes(), " do not fit ", groups, " groups");
    TORCH_CHECK(offset_groups > 0 && x.size(1) % offset_groups == 0, kName, ": ", x.size(1),
                " input channels do not fit ", offset_groups, " offset groups");
    const int64_t taps = offset_groups * w.size(2) * w.size(3);
    TORCH_CHECK(offset.size(1) == 2 * taps, "offset.shape[1] is not valid: got: ", offset.size(1),
                " expected: ", 2 * taps);
    TORCH_CHECK(!use_mask || mask.size(1) == taps, "mask.shape[1] is not valid: got: ", mask.size(1),
                " expected: ", taps);
    TORCH_CHECK(offset.size(0) == x.size(0), "invalid batch size of offset");
    TORCH_CHECK(!use_mask || mask.size(0) == x.size(0), "invalid batch size of mask");
    DimVector sizes = {x.size(0), w.size(0)};
    for (size_t i = 0; i < 2; ++i) {
      const auto d = static_cast<int64_t>(i) + 2;
      sizes.push_back((x.size(d) + 2 * pad[i] - dilation[i] * (w.size(d) - 1) - 1) / stride[i] + 1);
      TORCH_CHECK(offset.size(d) == sizes.back() && (!use_mask || mask.size(d) == sizes.back()), kName,
                  ": offset and mask must have the result's size ", sizes.back(), " in dimension ", d, ", but have ",
                  offset.sizes(), " and ", mask.sizes());
      TORCH_CHECK(sizes.back() > 0, "Calculated output size too small: ", sizes.back(), " in dimension ", d);
    }
    return sizes;
  }
  void attach(AnyCommand& cmd) const {
    cmd.Attr("strides", IntArrayRef(stride)).Attr("pads", IntArrayRef(pad)).Attr("dilations", IntArrayRef(dilation));
    cmd.Attr("groups", groups).Attr("deformable_groups", offset_groups);
  }
};

Tensor deform_conv2d(const Tensor& input, const Tensor& weight, const Tensor& offset, const Tensor& mask,
                     const Tensor& bias, int64_t stride_h, int64_t stride_w, int64_t pad_h, int64_t pad_w,
                     int64_t dilation_h, int64_t dilation_w, int64_t groups, int64_t offset_groups, bool use_mask) {
  DeviceOf guard(input);
  const DeformParams p{{stride_h, stride_w}, {pad_h, pad_w}, {dilation_h, dilation_w}, groups, offset_groups};
  const DimVector sizes = p.check(input, weight, offset, mask, use_mask);
  check_same("deform_conv2d", "input and bias", input, bias);
  TORCH_CHECK(bias.numel() == weight.size(0), "deform_conv2d: expected ", weight.size(0), " elements of bias, but got ",
              bias.sizes());
  const Tensor y = fresh(sizes, input.scalar_type(), input.device());
  if (y.numel() > 0) {
    AnyCommand cmd(input.device(), "DeformConv2d");
    cmd.Input(input).Input(weight).Input(offset);
    cmd.Input(use_mask ? mask : Tensor()).Input(bias).Output(y);
    p.attach(cmd);
    cmd.Run();
  }
  return y;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> deform_conv2d_backward(
    const Tensor& grad, const Tensor& input, const Tensor& weight, const Tensor& offset, const Tensor& mask,
    const Tensor& bias, int64_t stride_h, int64_t stride_w, int64_t pad_h, int64_t pad_w, int64_t dilation_h,
    int64_t dilation_w, int64_t groups, int64_t offset_groups, bool use_mask) {
  DeviceOf guard(input);
  const DeformParams p{{stride_h, stride_w}, {pad_h, pad_w}, {dilation_h, dilation_w}, groups, offset_groups};
  const DimVector sizes = p.check(input, weight, offset, mask, use_mask);
  check_same("_deform_conv2d_backward", "input and grad", input, grad);
  TORCH_CHECK(grad.sizes() == IntArrayRef(sizes), "_deform_conv2d_backward: expected a gradient of sizes ",
              IntArrayRef(sizes), ", but got ", grad.sizes());
  const bool empty = grad.numel() == 0 || input.numel() == 0;
  const auto grad_of = [&](const Tensor& t) {
    return empty ? at::zeros(t.sizes(), t.options()) : fresh(t.sizes(), t.scalar_type(), t.device());
  };
  const Tensor dx = grad_of(input), dw = grad_of(weight), doffset = grad_of(offset);
  const Tensor dmask = use_mask ? grad_of(mask) : at::zeros_like(mask);
  if (!empty) {
    AnyCommand cmd(input.device(), "DeformConv2dGrad");
    cmd.Input(grad).Input(input).Input(weight).Input(offset);
    cmd.Input(use_mask ? mask : Tensor()).Output(dx).Output(dw).Output(doffset);
    if (use_mask) {
      cmd.Output(dmask);
    }
    p.attach(cmd);
    cmd.Run();
  }
  return {dx, dw, doffset, dmask, grad.sum(IntArrayRef({0, 2, 3})).view(bias.sizes())};
}

// ---- Non-maximum suppression ----

Tensor nms(const Tensor& dets, const Tensor& scores, double iou_threshold) {
  DeviceOf guard(dets);
  TORCH_CHECK(dets.dim() == 2, "boxes should be a 2d tensor, got ", dets.dim(), "D");
  TORCH_CHECK(dets.size(1) == 4, "boxes should have 4 elements in dimension 1, got ", dets.size(1));
  TORCH_CHECK(scores.dim() == 1, "scores should be a 1d tensor, got ", scores.dim(), "D");
  TORCH_CHECK(dets.size(0) == scores.size(0),
              "boxes and scores should have same number of elements in dimension 0, got ", dets.size(0), " and ",
              scores.size(0));
  check_dtype(dets.scalar_type(), kDtypeFloat, "nms");
  check_same("nms", "dets and scores", dets, scores);
  const Tensor kept = fresh({dets.size(0)}, kLong, dets.device());
  if (dets.size(0) == 0) {
    return kept;
  }
  if (dets.is_privateuseone() && lacks("Nms")) {
    const ScalarType type = dets.scalar_type() == kHalf ? kHalf : kFloat;
    const Tensor index = empty_npu({dets.size(0)}, kInt, dets.device()), found = empty_npu({}, kInt, dets.device());
    OpCommand cmd;
    cmd.Name("NonMaxSuppressionV4").Input(dets.to(type)).Input(scores.to(type)).Input(Scalar(dets.size(0)), kInt);
    cmd.Input(Scalar(iou_threshold), kFloat).Input(Scalar(std::numeric_limits<float>::lowest()), kFloat);
    cmd.Output(index).Output(found).Attr("pad_to_max_output_size", true).Run();
    return index.narrow(0, 0, found.item<int64_t>()).to(kLong);
  }
  const Tensor count = fresh(IntArrayRef{}, kLong, dets.device());
  AnyCommand cmd(dets.device(), "Nms");
  cmd.Input(dets).Input(scores).Input(Scalar(iou_threshold), kDouble);
  cmd.Output(kept).Output(count).Run();
  return kept.narrow(0, 0, count.item<int64_t>());
}

// Autocast: computed in float32, as torchvision does; floating-point results get the first operand's dtype back.
void in_float(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  std::optional<ScalarType> dtype;
  const size_t first = stack->size() - op.schema().arguments().size();
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_floating_point()) {
      dtype = dtype.value_or(value.toTensor().scalar_type());
      value = at::autocast::cached_cast(kFloat, value.toTensor(), c10::DeviceType::PrivateUse1);
    }
  }
  op.callBoxed(stack);
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor() && value.toTensor().is_floating_point()) {
      value = value.toTensor().to(dtype.value_or(kFloat));
    }
  }
}

// A name as a template's argument.
template <size_t size>
struct Literal {
  constexpr Literal(const char (&given)[size]) { std::copy_n(given, size, text); }
  char text[size];
};
template <Literal literal>
struct Named {
  static constexpr const char* name = literal.text;
  static constexpr const char* overload_name = "";
};

// Of these a card has non-maximum suppression alone: the others run there on the CPU, where torchvision's binary has
// their kernels.
template <Literal name, class Signature, Signature* kernel>
void register_or_cpu(torch::Library& m) {
  m.impl(Named<name>::name, &OrCpu<Named<name>, Signature, kernel>::call);
}

void register_kernels(torch::Library& m) {
  register_or_cpu<"torchvision::nms", decltype(nms), nms>(m);
  register_or_cpu<"torchvision::roi_align", decltype(roi_align), roi_align>(m);
  register_or_cpu<"torchvision::_roi_align_backward", decltype(roi_align_backward), roi_align_backward>(m);
  register_or_cpu<"torchvision::roi_pool", decltype(roi_pool), roi_pool>(m);
  register_or_cpu<"torchvision::_roi_pool_backward", decltype(roi_pool_backward), roi_pool_backward>(m);
  register_or_cpu<"torchvision::ps_roi_align", decltype(ps_roi_align), ps_roi_align>(m);
  register_or_cpu<"torchvision::_ps_roi_align_backward", decltype(ps_roi_align_backward), ps_roi_align_backward>(m);
  register_or_cpu<"torchvision::ps_roi_pool", decltype(ps_roi_pool), ps_roi_pool>(m);
  register_or_cpu<"torchvision::_ps_roi_pool_backward", decltype(ps_roi_pool_backward), ps_roi_pool_backward>(m);
  register_or_cpu<"torchvision::deform_conv2d", decltype(deform_conv2d), deform_conv2d>(m);
  register_or_cpu<"torchvision::_deform_conv2d_backward", decltype(deform_conv2d_backward), deform_conv2d_backward>(m);
}

}  // namespace

TORCH_LIBRARY_IMPL(torchvision, AutocastPrivateUse1, m) {
  for (const char* name : {"nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&in_float>());
  }
}

TORCH_LIBRARY_IMPL(torchvision, PrivateUse1, m) { register_kernels(m); }

}  // namespace at::native::npu

namespace at::npu {

void provide_torchvision_on_cpu() {
  // The registrations live as long as the process. Autocast's are torchvision's own, in Python.
  static auto* library = new torch::Library(torch::Library::IMPL, "torchvision", c10::DispatchKey::CPU, __FILE__,
                                            static_cast<uint32_t>(__LINE__));
  static const bool done = (native::npu::register_kernels(*library), true);
  static_cast<void>(done);
}

}  // namespace at::npu
