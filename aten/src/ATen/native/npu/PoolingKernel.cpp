// The pooling operators that are not one entry of the operator table: adaptive average and three-dimensional maximum.

#include <ATen/native/Pool.h>
#include <ATen/native/npu/NnArgs.h>
#include <ATen/native/npu/frame/Allocate.h>
#include <ATen/native/npu/frame/DeviceOf.h>
#include <ATen/native/npu/frame/OpCommand.h>
#include <ATen/ops/zeros.h>
#include <NPUNativeFunctions.h>

#include <tuple>

namespace at::native::npu {

Tensor adaptive_avg_pool2d(const Tensor& self, IntArrayRef output_size) {
  DeviceOf guard(self);
  TORCH_CHECK(output_size.size() == 2, "adaptive_avg_pool2d: output_size must be 2");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4, "adaptive_avg_pool2d(): Expected 3D or 4D tensor, but got ",
              self.sizes());
  DimVector sizes(self.sizes().begin(), self.sizes().end() - 2);
  sizes.append(output_size.begin(), output_size.end());
  const Tensor y = empty_npu(sizes, self.scalar_type(), self.device());
  if (y.numel() > 0) {
    OpCommand cmd;
    cmd.Name("AdaptiveAvgPool2d").Input(self).Output(y).Attr("output_size", output_size).Run();
  }
  return y;
}

Tensor adaptive_avg_pool2d_backward(const Tensor& grad_output, const Tensor& self) {
  DeviceOf guard(self);
  if (grad_output.numel() == 0) {
    return at::zeros(self.sizes(), self.options());
  }
  const Tensor dx = empty_as(self);
  if (dx.numel() > 0) {
    OpCommand cmd;
    cmd.Name("AdaptiveAvgPool2dGrad").Input(grad_output).Output(dx).Attr("orig_input_shape", self.sizes()).Run();
  }
  return dx;
}

std::tuple<Tensor, Tensor> max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                                      IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  DeviceOf guard(self);
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5, "max_pool3d(): Expected 4D or 5D tensor, but got ", self.sizes());
  const DimVector k = spatial(kernel_size, 3), s = window_strides(stride, kernel_size, 3), p = spatial(padding, 3);
  const DimVector d = spatial(dilation, 3);
  DimVector sizes(self.sizes().begin(), self.sizes().end());
  for (size_t i = 0; i < 3; ++i) {
    int64_t& size = sizes[sizes.size() - 3 + i];
    size = pooling_output_shape<int64_t>(size, k[i], p[i], s[i], d[i], ceil_mode);
  }
  const Tensor y = empty_npu(sizes, self.scalar_type(), self.device());
  const Tensor argmax = empty_npu(sizes, kLong, self.device());
  if (y.numel() > 0) {
    OpCommand cmd;
    cmd.Name("MaxPool3DWithArgmaxV2").Input(self).Output(y).Output(argmax).Attr("ksize", k).Attr("strides", s);
    cmd.Attr("pads", p).Attr("dilation", d).Attr("ceil_mode", ceil_mode).Run();
  }
  return {y, argmax};
}

Tensor max_pool3d_backward(const Tensor& grad_output, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                           IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, const Tensor& indices) {
  DeviceOf guard(self);
  const Tensor dx = empty_as(self);
  if (dx.numel() > 0) {
    OpCommand cmd;
    cmd.Name("MaxPool3DGradWithArgmax").Input(self).Input(grad_output).Input(indices).Output(dx);
    cmd.Attr("ksize", spatial(kernel_size, 3)).Attr("strides", window_strides(stride, kernel_size, 3));
    cmd.Attr("pads", spatial(padding, 3)).Attr("dilation", spatial(dilation, 3)).Attr("ceil_mode", ceil_mode).Run();
  }
  return dx;
}

}  // namespace at::native::npu
