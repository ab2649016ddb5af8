// npu's own spellings of convolutions, made of differentiable operators.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

// The arguments of one convolution, plain or transposed.
struct Conv {
  IntArrayRef stride, padding, dilation, output_padding;
  int64_t groups;
  bool transposed;

  Tensor forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) const {
    return at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  }
  std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& input, const Tensor& grad, const Tensor& weight,
                                              std::array<bool, 3> mask) const {
    const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
    return at::convolution_backward(grad, input, weight, IntArrayRef(channels), stride, padding, dilation, transposed,
                                    output_padding, groups, mask);
  }
};

Conv plain_conv(IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  static const std::vector<int64_t> none(3, 0);
  return {stride, padding, dilation, IntArrayRef(none).slice(0, stride.size()), groups, false};
}

void check_rank(const char* name, const Tensor& input, int64_t rank) {
  TORCH_CHECK(input.dim() == rank, name, ": expected an input of ", rank, " dimensions, got one of shape ",
              input.sizes());
}

}  // namespace

Tensor npu_conv2d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                  IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  check_rank("npu_conv2d", input, 4);
  return plain_conv(stride, padding, dilation, groups).forward(input, weight, bias);
}

Tensor& npu_conv2d_out(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                       IntArrayRef padding, IntArrayRef dilation, int64_t groups, Tensor& out) {
  return give(npu::npu_conv2d(input, weight, bias, stride, padding, dilation, groups), out);
}

Tensor npu_conv3d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                  IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  check_rank("npu_conv3d", input, 5);
  return plain_conv(stride, padding, dilation, groups).forward(input, weight, bias);
}

Tensor& npu_conv3d_out(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                       IntArrayRef padding, IntArrayRef dilation, int64_t groups, Tensor& out) {
  return give(npu::npu_conv3d(input, weight, bias, stride, padding, dilation, groups), out);
}

Tensor npu_convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                       IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  return plain_conv(stride, padding, dilation, groups).forward(input, weight, bias);
}

std::tuple<Tensor, Tensor, Tensor> npu_convolution_backward(const Tensor& input, const Tensor& grad_output,
                                                            const Tensor& weight, IntArrayRef stride,
                                                            IntArrayRef padding, IntArrayRef dilation, int64_t groups,
                                                            std::array<bool, 3> output_mask) {
  return plain_conv(stride, padding, dilation, groups).backward(input, grad_output, weight, output_mask);
}

std::tuple<Tensor, Tensor, Tensor> npu_conv2d_backward(const Tensor& input, const Tensor& grad_output,
                                                       const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
                                                       IntArrayRef dilation, int64_t groups,
                                                       std::array<bool, 3> output_mask) {
  check_rank("npu_conv2d_backward", input, 4);
  return npu_convolution_backward(input, grad_output, weight, stride, padding, dilation, groups, output_mask);
}

std::tuple<Tensor, Tensor, Tensor> npu_conv3d_backward(const Tensor& input, const Tensor& grad, const Tensor& weight,
                                                       IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                                       int64_t groups, std::array<bool, 3> output_mask) {
  check_rank("npu_conv3d_backward", input, 5);
  return npu_convolution_backward(input, grad, weight, stride, padding, dilation, groups, output_mask);
}

std::tuple<Tensor, Tensor, Tensor> npu_convolution_double_backward(
    const std::optional<Tensor>& ggI, const std::optional<Tensor>& ggW, const std::optional<Tensor>& ggb,
    const Tensor& input, const Tensor& gO, const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, std::array<bool, 3> output_mask) {
  const Conv c = plain_conv(stride, padding, dilation, groups);
  return at::_convolution_double_backward(ggI, ggW, ggb, gO, weight, input, stride, padding, dilation, false,
                                          c.output_padding, groups, output_mask);
}

Tensor npu_convolution_transpose(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                                 IntArrayRef padding, IntArrayRef output_padding, IntArrayRef stride,
                                 IntArrayRef dilation, int64_t groups) {
  return Conv{stride, padding, dilation, output_padding, groups, true}.forward(input, weight, bias);
}

Tensor npu_conv_transpose2d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                            IntArrayRef padding, IntArrayRef output_padding, IntArrayRef stride, IntArrayRef dilation,
                            int64_t groups) {
  check_rank("npu_conv_transpose2d", input, 4);
  return npu_convolution_transpose(input, weight, bias, padding, output_padding, stride, dilation, groups);
}

std::tuple<Tensor, Tensor, Tensor> npu_convolution_transpose_backward(const Tensor& input, const Tensor& grad_output,
                                                                      const Tensor& weight, IntArrayRef padding,
                                                                      IntArrayRef output_padding, IntArrayRef stride,
                                                                      IntArrayRef dilation, int64_t groups,
                                                                      std::array<bool, 3> output_mask) {
  return Conv{stride, padding, dilation, output_padding, groups, true}.backward(input, grad_output, weight,
                                                                                output_mask);
}

std::tuple<Tensor, Tensor, Tensor> npu_conv_transpose2d_backward(const Tensor& input, const Tensor& grad_output,
                                                                 const Tensor& weight, IntArrayRef padding,
                                                                 IntArrayRef output_padding, IntArrayRef stride,
                                                                 IntArrayRef dilation, int64_t groups,
                                                                 std::array<bool, 3> output_mask) {
  check_rank("npu_conv_transpose2d_backward", input, 4);
  return npu_convolution_transpose_backward(input, grad_output, weight, padding, output_padding, stride, dilation,
                                            groups, output_mask);
}

std::tuple<Tensor, Tensor, Tensor> npu_conv_transpose3d_backward(const Tensor& input, const Tensor& grad_output,
                                                                 const Tensor& weight, IntArrayRef padding,
                                                                 IntArrayRef output_padding, IntArrayRef stride,
                                                                 IntArrayRef dilation, int64_t groups,
                                                                 std::array<bool, 3> output_mask) {
  check_rank("npu_conv_transpose3d_backward", input, 5);
  return npu_convolution_transpose_backward(input, grad_output, weight, padding, output_padding, stride, dilation,
                                            groups, output_mask);
}

}  // namespace at::native::npu
