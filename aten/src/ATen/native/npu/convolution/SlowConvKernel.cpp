// Convolutions that are called by the name of the CPU's way to compute them: on npu they are plain convolutions.
// Samples without a batch get one.

#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <NPUNativeFunctions.h>

#include <array>
#include <tuple>

namespace at::native::npu {
namespace {

struct SlowConv {
  const char* name;
  size_t rank;
  IntArrayRef kernel_size, stride, padding, dilation;
  bool transposed = false;
  IntArrayRef output_padding = {};

  Tensor run(const Tensor& self, const Tensor& weight, const std::optional<Tensor>& bias) const {
    const auto spatial = static_cast<int64_t>(rank);
    TORCH_CHECK(self.dim() == spatial + 1 || self.dim() == spatial + 2, name, ": expected an input of ", spatial + 1,
                " or ", spatial + 2, " dimensions, but got ", self.sizes());
    TORCH_CHECK(weight.dim() == spatial + 2 && weight.sizes().slice(2) == kernel_size, name, ": kernel_size ",
                kernel_size, " is not that of the weight ", weight.sizes());
    const bool batched = self.dim() == spatial + 2;
    const Tensor y = at::convolution(batched ? self : self.unsqueeze(0), weight, bias, stride, padding,
                                     filled(dilation, 1), transposed, filled(output_padding, 0), 1);
    return batched ? y : y.squeeze(0);
  }
  DimVector filled(IntArrayRef values, int64_t otherwise) const {
    return values.empty() ? DimVector(rank, otherwise) : DimVector(values.begin(), values.end());
  }
};

}  // namespace

Tensor slow_conv_dilated2d(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size,
                           const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
                           IntArrayRef dilation) {
  return SlowConv{"slow_conv_dilated2d", 2, kernel_size, stride, padding, dilation}.run(self, weight, bias);
}
Tensor slow_conv_dilated3d(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size,
                           const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
                           IntArrayRef dilation) {
  return SlowConv{"slow_conv_dilated3d", 3, kernel_size, stride, padding, dilation}.run(self, weight, bias);
}

Tensor slow_conv_transpose2d(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size,
                             const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
                             IntArrayRef output_padding, IntArrayRef dilation) {
  return SlowConv{"slow_conv_transpose2d", 2, kernel_size, stride, padding, dilation, true, output_padding}.run(
      self, weight, bias);
}
Tensor& slow_conv_transpose2d_out(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size,
                                  const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
                                  IntArrayRef output_padding, IntArrayRef dilation, Tensor& out) {
  return give(npu::slow_conv_transpose2d(self, weight, kernel_size, bias, stride, padding, output_padding, dilation),
              out);
}
Tensor slow_conv_transpose3d(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size,
                             const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
                             IntArrayRef output_padding, IntArrayRef dilation) {
  return SlowConv{"slow_conv_transpose3d", 3, kernel_size, stride, padding, dilation, true, output_padding}.run(
      self, weight, bias);
}
Tensor& slow_conv_transpose3d_out(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size,
                                  const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
                                  IntArrayRef output_padding, IntArrayRef dilation, Tensor& out) {
  return give(npu::slow_conv_transpose3d(self, weight, kernel_size, bias, stride, padding, output_padding, dilation),
              out);
}

Tensor slow_conv3d(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size, const std::optional<Tensor>& bias,
                   IntArrayRef stride, IntArrayRef padding) {
  return SlowConv{"slow_conv3d", 3, kernel_size, stride, padding, {}}.run(self, weight, bias);
}
Tensor& slow_conv3d_out(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size,
                        const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding, Tensor& output) {
  return give(npu::slow_conv3d(self, weight, kernel_size, bias, stride, padding), output);
}

Tensor slow_conv2d(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size, const std::optional<Tensor>& bias,
                   IntArrayRef stride, IntArrayRef padding) {
  return SlowConv{"thnn_conv2d", 2, kernel_size, stride, padding, {}}.run(self, weight, bias);
}
Tensor& slow_conv2d_out(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size,
                        const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding, Tensor& output) {
  return give(npu::slow_conv2d(self, weight, kernel_size, bias, stride, padding), output);
}

std::tuple<Tensor, Tensor, Tensor> slow_conv2d_backward(const Tensor& grad_output, const Tensor& self,
                                                        const Tensor& weight, IntArrayRef, IntArrayRef stride,
                                                        IntArrayRef padding, std::array<bool, 3> output_mask) {
  constexpr std::array<int64_t, 2> kOne = {1, 1}, kZero = {0, 0};
  return at::convolution_backward(grad_output, self, weight, IntArrayRef(weight.size(0)), stride, padding, kOne, false,
                                  kZero, 1, output_mask);
}
std::tuple<Tensor&, Tensor&, Tensor&> slow_conv2d_backward_out(const Tensor& grad_output, const Tensor& self,
                                                               const Tensor& weight, IntArrayRef kernel_size,
                                                               IntArrayRef stride, IntArrayRef padding,
                                                               Tensor& grad_input, Tensor& grad_weight,
                                                               Tensor& grad_bias) {
  const std::array<Tensor*, 3> outs = {&grad_input, &grad_weight, &grad_bias};
  const std::array<bool, 3> mask = {grad_input.defined(), grad_weight.defined(), grad_bias.defined()};
  const auto [dx, dw, db] = npu::slow_conv2d_backward(grad_output, self, weight, kernel_size, stride, padding, mask);
  const std::array<Tensor, 3> results = {dx, dw, db};
  for (size_t i = 0; i < outs.size(); ++i) {
    if (mask[i]) {
      give(results[i], *outs[i]);
    }
  }
  return std::forward_as_tuple(grad_input, grad_weight, grad_bias);
}

}  // namespace at::native::npu
