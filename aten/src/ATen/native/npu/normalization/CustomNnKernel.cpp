// npu operators of networks that are made of differentiable operators: convolutions, products, activations, norms.

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

Tensor npu_linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  return at::linear(input, weight, bias);
}
std::tuple<Tensor, Tensor> npu_linear_backward(const Tensor& grad, const Tensor& input, const Tensor& weight) {
  const Tensor rows = grad.reshape({-1, grad.size(-1)});
  return {at::matmul(grad, weight), at::mm(rows.t(), input.reshape({-1, input.size(-1)}))};
}

// Batch dimensions that `output_sizes` has not are summed: the gradient of a broadcast operand.
Tensor npu_bmmV2(const Tensor& self, const Tensor& mat2, IntArrayRef output_sizes) {
  const Tensor product = at::matmul(self, mat2);
  return output_sizes.empty() || product.sizes() == output_sizes ? product : product.sum_to_size(output_sizes);
}

Tensor npu_silu(const Tensor& self) { return at::silu(self); }
Tensor& npu_silu_(Tensor& self) { return at::silu_(self); }
Tensor npu_silu_backward(const Tensor& grad_output, const Tensor& x0, const Tensor& /*x1: silu(x0)*/) {
  return at::silu_backward(grad_output, x0);
}

Tensor npu_mish(const Tensor& self) { return at::mish(self); }
Tensor npu_mish_backward(const Tensor& grad, const Tensor& input) { return at::mish_backward(grad, input); }

Tensor npu_softmax_cross_entropy_with_logits(const Tensor& self, const Tensor& labels) {
  TORCH_CHECK(self.dim() == 2 && self.sizes() == labels.sizes(),
              "npu_softmax_cross_entropy_with_logits: logits and labels of one shape (batch, classes) expected, got ",
              self.sizes(), " and ", labels.sizes());
  return -(labels * at::log_softmax(self, -1)).sum(-1);
}
Tensor npu_softmax_cross_entropy_with_logits_backward(const Tensor& grad, const Tensor& self, const Tensor& labels) {
  return (at::softmax(self, -1) * labels.sum(-1, true) - labels) * grad.unsqueeze(-1);
}

Tensor npu_layer_norm_eval(const Tensor& input, IntArrayRef normalized_shape, const std::optional<Tensor>& weight,
                           const std::optional<Tensor>& bias, double eps) {
  return at::layer_norm(input, normalized_shape, weight, bias, eps);
}

// Standardises each sample by its first seq_len steps: mean, and standard deviation (n - 1) plus 1e-5, of each feature
// or of all.
Tensor npu_normalize_batch(const Tensor& self, const Tensor& seq_len, int64_t normalize_type) {
  TORCH_CHECK(self.dim() == 3 && seq_len.dim() == 1 && seq_len.size(0) == self.size(0),
              "npu_normalize_batch: self of shape (n, c, d) and seq_len of shape (n) expected, got ", self.sizes(),
              " and ", seq_len.sizes());
  TORCH_CHECK(normalize_type == 0 || normalize_type == 1,
              "npu_normalize_batch: normalize_type is 0 (per feature) or 1 (all features), got ", normalize_type);
  const std::vector<int64_t> dims = normalize_type == 0 ? std::vector<int64_t>{2} : std::vector<int64_t>{1, 2};
  const Tensor length = seq_len.view({-1, 1, 1});
  const Tensor counted = at::arange(self.size(2), seq_len.options()).view({1, 1, -1}) < length;
  const Tensor count = length.to(self.scalar_type()) * (normalize_type == 0 ? 1 : self.size(1));
  const Tensor mean = at::where(counted, self, 0).sum(dims, true) / count;
  const Tensor centred = self - mean;
  const Tensor variance = at::where(counted, centred * centred, 0).sum(dims, true) / (count - 1);
  return centred / (variance.sqrt() + 1e-5);
}

}  // namespace at::native::npu
