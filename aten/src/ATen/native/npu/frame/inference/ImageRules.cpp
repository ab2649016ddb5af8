// Checks and result sizes for operators over images, volumes and class scores.

#include <ATen/native/npu/frame/inference/ImageRules.h>

#include <ATen/native/AdaptivePooling.h>
#include <ATen/native/LossMulti.h>
#include <ATen/native/Padding.h>
#include <ATen/native/Pool.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/native/npu/NnArgs.h>

#include <array>

namespace at::native::npu::meta_rules {
namespace {

void check_length(const char* name, const char* argument, IntArrayRef values, size_t length) {
  TORCH_CHECK(values.size() == length || values.size() == 1, name, ": ", argument, " must be one int or ", length,
              " ints, but got ", values.size());
}

// Sizes with the last ones replaced.
DimVector with_last(const Tensor& self, IntArrayRef last) {
  DimVector sizes(self.sizes().begin(), self.sizes().end() - static_cast<std::ptrdiff_t>(last.size()));
  sizes.append(last.begin(), last.end());
  return sizes;
}

// The options of a result that keeps the layout of a batch.
TensorOptions layout_of(const Tensor& self, int64_t batch_rank) {
  return self.dim() == batch_rank ? self.options().memory_format(self.suggest_memory_format()) : self.options();
}

void check_positive(const Tensor& self, const char* name, int64_t from) {
  for (int64_t i = from; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0, name, "(): Expected input to have non-zero size for non-batch dimensions, but got ",
                self.sizes(), " with dimension ", i, " being empty.");
  }
}

void check_same_dtype(const char* name, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name, ": expected dtype ", a.scalar_type(), " but got dtype ",
              b.scalar_type());
}

// The windows of a three-dimensional pooling operator.
struct Windows {
  Windows(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
          bool ceil_mode) {
    constexpr const char* kName = "max_pool3d";
    check_length(kName, "kernel_size", kernel_size, 3);
    check_length(kName, "padding", padding, 3);
    check_length(kName, "dilation", dilation, 3);
    TORCH_CHECK(stride.empty() || stride.size() == 1 || stride.size() == 3,
                "max_pool3d: stride must be omitted, one int or three ints, but got ", stride.size());
    TORCH_CHECK(self.dim() == 4 || self.dim() == 5,
                "max_pool3d: Expected 4D or 5D tensor for input, but got: ", self.sizes());
    k = spatial(kernel_size, 3);
    s = window_strides(stride, kernel_size, 3);
    p = spatial(padding, 3);
    d = spatial(dilation, 3);
    in = self.sizes().slice(static_cast<size_t>(self.dim()) - 3);
    for (size_t i = 0; i < 3; ++i) {
      out.push_back(pooling_output_shape<int64_t>(in[i], k[i], p[i], s[i], d[i], ceil_mode));
    }
  }
  int at(const DimVector& v, size_t i) const { return safe_downcast<int>(v[i]); }

  DimVector k, s, p, d, in, out;
};

}  // namespace

void adaptive_avg_pool2d::meta(const Tensor& self, IntArrayRef output_size) {
  TORCH_CHECK(output_size.size() == 2, "adaptive_avg_pool2d: output_size must be 2");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4, "adaptive_avg_pool2d(): Expected 3D or 4D tensor, but got ",
              self.sizes());
  set_output_raw_strided(0, with_last(self, output_size), {}, layout_of(self, 4));
}

void adaptive_avg_pool3d::meta(const Tensor& self, IntArrayRef output_size) {
  TORCH_CHECK(output_size.size() == 3, "adaptive_avg_pool3d: output_size must be 3");
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5, "adaptive_avg_pool3d(): Expected 4D or 5D tensor, but got ",
              self.sizes());
  check_positive(self, "adaptive_avg_pool3d", 1);
  set_output_raw_strided(0, with_last(self, output_size), {}, self.options());
}

void adaptive_pool_backward::meta(const Tensor& grad_output, const Tensor& self) {
  constexpr const char* kName = "adaptive_avg_pool_backward";
  adaptive_pool_empty_output_check(grad_output, kName);
  TORCH_CHECK(grad_output.dim() == self.dim(), kName, ": expected grad_output with ", self.dim(),
              " dimensions, but got ", grad_output.sizes());
  check_same_dtype(kName, self, grad_output);
  set_output_raw_strided(0, self.sizes(), {}, layout_of(self, 4));
}

void max_pool3d::meta(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                      IntArrayRef dilation, bool ceil_mode) {
  const Windows w(self, kernel_size, stride, padding, dilation, ceil_mode);
  pool3d_shape_check(self, self.size(-4), w.at(w.k, 0), w.at(w.k, 1), w.at(w.k, 2), w.at(w.s, 0), w.at(w.s, 1),
                     w.at(w.s, 2), w.at(w.p, 0), w.at(w.p, 1), w.at(w.p, 2), w.at(w.d, 0), w.at(w.d, 1), w.at(w.d, 2),
                     w.in[0], w.in[1], w.in[2], w.out[0], w.out[1], w.out[2], "max_pool3d_with_indices");
  const DimVector sizes = with_last(self, w.out);
  const TensorOptions options = layout_of(self, 5);
  set_output_raw_strided(0, sizes, {}, options);
  set_output_raw_strided(1, sizes, {}, options.dtype(kLong));
}

void max_pool3d_backward::meta(const Tensor& grad_output, const Tensor& self, IntArrayRef kernel_size,
                               IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool ceil_mode,
                               const Tensor& indices) {
  const Windows w(self, kernel_size, stride, padding, dilation, ceil_mode);
  max_pool3d_backward_shape_check(self, grad_output, indices, self.size(-4), w.at(w.k, 0), w.at(w.k, 1), w.at(w.k, 2),
                                  w.at(w.s, 0), w.at(w.s, 1), w.at(w.s, 2), w.at(w.p, 0), w.at(w.p, 1), w.at(w.p, 2),
                                  w.at(w.d, 0), w.at(w.d, 1), w.at(w.d, 2), w.in[0], w.in[1], w.in[2], w.out[0],
                                  w.out[1], w.out[2], "max_pool3d_with_indices_backward");
  check_same_dtype("max_pool3d_with_indices_backward", self, grad_output);
  set_output_raw_strided(0, self.sizes(), {}, layout_of(self, 5));
}

void fractional_max_pool3d_backward::meta(const Tensor& grad_output, const Tensor& self, IntArrayRef,
                                          IntArrayRef output_size, const Tensor& indices) {
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5,
              "fractional_max_pool3d_backward(): Expected 4D or 5D tensor, but got ", self.sizes());
  TORCH_CHECK(output_size.size() == 3, "fractional_max_pool3d_backward(): output_size must be three ints");
  TORCH_CHECK(grad_output.dim() == self.dim() && grad_output.sizes() == IntArrayRef(with_last(self, output_size)) &&
                  indices.sizes() == grad_output.sizes(),
              "fractional_max_pool3d_backward(): gradOutput sizes unexpected: ", grad_output.sizes());
  set_output_raw_strided(0, self.sizes(), {}, self.options());
}

void max_unpool2d::meta(const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  TORCH_CHECK(indices.scalar_type() == kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(output_size.size() == 2, "There should be exactly two elements (height, width) in output_size, but got ",
              output_size.size(), " elements.");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "Input to max_unpooling2d should be a 3d or 4d Tensor, but got a tensor with ", self.dim(),
              " dimensions.");
  TORCH_CHECK(self.sizes() == indices.sizes(), "Expected shape of indices to be same as that of the input tensor (",
              self.sizes(), ") but got indices tensor with shape: ", indices.sizes());
  check_positive(self, "max_unpooling2d", 1);
  at::globalContext().alertNotDeterministic("max_unpooling2d_forward_out");
  set_output_raw_strided(0, with_last(self, output_size), {}, layout_of(self, 4));
}

void max_unpool3d::meta(const Tensor& self, const Tensor& indices, IntArrayRef output_size, IntArrayRef stride,
                        IntArrayRef padding) {
  TORCH_CHECK(output_size.size() == 3,
              "There should be exactly three elements (depth, height, width) in output_size, but got ",
              output_size.size(), " elements.");
  TORCH_CHECK(indices.scalar_type() == kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5,
              "Input to max_unpooling3d should be a 4d or 5d Tensor, but got a tensor with ", self.dim(),
              " dimensions.");
  TORCH_CHECK(stride.size() == 3,
              "There should be exactly three elements (depth, height, width) in stride, but got: ", stride.size(),
              " elements.");
  TORCH_CHECK(padding.size() == 3,
              "There should be exactly three elements (depth, height, width) in padding, but got: ", padding.size(),
              " elements.");
  TORCH_CHECK(self.sizes() == indices.sizes(), "Expected shape of indices to be same as that of the input tensor (",
              self.sizes(), ") but got indices tensor with shape: ", indices.sizes());
  check_positive(self, "max_unpooling3d", 1);
  at::globalContext().alertNotDeterministic("max_unpooling3d_forward_out");
  TORCH_CHECK(stride[0] > 0 && stride[1] > 0 && stride[2] > 0,
              "strides should be greater than zero, but got stride: ", stride);
  set_output_raw_strided(0, with_last(self, output_size), {}, self.options());
}

namespace {

DimVector padded_image(const Tensor& self, IntArrayRef padding) {
  const int64_t height = self.size(-2) + padding[2] + padding[3], width = self.size(-1) + padding[0] + padding[1];
  TORCH_CHECK(width >= 1 && height >= 1, "input (H: ", self.size(-2), ", W: ", self.size(-1),
              ") is too small. Calculated output H: ", height, " W: ", width);
  return with_last(self, {height, width});
}

}  // namespace

void reflection_pad2d::meta(const Tensor& self, IntArrayRef padding) {
  padding::check_valid_input<2>(self, padding);
  const int64_t height = self.size(-2), width = self.size(-1);
  TORCH_CHECK(padding[0] < width && padding[1] < width,
              "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding (",
              padding[0], ", ", padding[1], ") at dimension ", self.dim() - 1, " of input ", self.sizes());
  TORCH_CHECK(padding[2] < height && padding[3] < height,
              "Argument #6: Padding size should be less than the corresponding input dimension, but got: padding (",
              padding[2], ", ", padding[3], ") at dimension ", self.dim() - 2, " of input ", self.sizes());
  set_output_raw_strided(0, padded_image(self, padding), {}, layout_of(self, 4));
}

void replication_pad2d::meta(const Tensor& self, IntArrayRef padding) {
  padding::check_valid_input<2>(self, padding);
  set_output_raw_strided(0, padded_image(self, padding), {}, layout_of(self, 4));
}

namespace {

void check_pad_backward(const Tensor& grad_output, const Tensor& self, IntArrayRef padding, int64_t rank) {
  TORCH_CHECK(static_cast<int64_t>(padding.size()) == 2 * rank, "padding size is expected to be ", 2 * rank);
  TORCH_CHECK(self.dim() > rank && self.dim() == grad_output.dim(), "gradient of padding: expected grad_output with ",
              self.dim(), " dimensions, but got ", grad_output.sizes());
  constexpr std::array<const char*, 3> kNames = {"width", "height", "depth"};
  for (int64_t i = 0; i < rank; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t expected = self.size(-1 - i) + padding[2 * at] + padding[2 * at + 1];
    TORCH_CHECK(grad_output.size(-1 - i) == expected, "gradOutput ", kNames[at], " unexpected. Expected: ", expected,
                ", Got: ", grad_output.size(-1 - i));
  }
}

}  // namespace

void pad2d_backward::meta(const Tensor& grad_output, const Tensor& self, IntArrayRef padding) {
  check_pad_backward(grad_output, self, padding, 2);
  set_output_raw_strided(0, self.sizes(), {}, layout_of(self, 4));
}

void pad3d_backward::meta(const Tensor& grad_output, const Tensor& self, IntArrayRef padding) {
  check_pad_backward(grad_output, self, padding, 3);
  set_output_raw_strided(0, self.sizes(), {}, layout_of(self, 5));
}

namespace {

void check_two(const char* argument, IntArrayRef values) {
  TORCH_CHECK(values.size() == 2, "It is expected ", argument, " equals to 2, but got size ", values.size());
}

}  // namespace

void im2col::meta(const Tensor& self, IntArrayRef kernel_size, IntArrayRef dilation, IntArrayRef padding,
                  IntArrayRef stride) {
  check_two("kernel_size", kernel_size);
  check_two("dilation", dilation);
  check_two("padding", padding);
  check_two("stride", stride);
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
              "input, but got: ",
              self.sizes());
  im2col_shape_check(self, Tensor(), kernel_size[0], kernel_size[1], dilation[0], dilation[1], padding[0], padding[1],
                     stride[0], stride[1]);
  int64_t length = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = self.size(static_cast<int64_t>(i) - 2);
    length *= (size + 2 * padding[i] - dilation[i] * (kernel_size[i] - 1) - 1) / stride[i] + 1;
  }
  DimVector sizes;
  if (self.dim() == 4) {
    sizes.push_back(self.size(0));
  }
  sizes.push_back(self.size(-3) * kernel_size[0] * kernel_size[1]);
  sizes.push_back(length);
  set_output_raw_strided(0, sizes, {}, self.options());
}

void col2im::meta(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size, IntArrayRef dilation,
                  IntArrayRef padding, IntArrayRef stride) {
  check_two("output_size", output_size);
  check_two("kernel_size", kernel_size);
  check_two("dilation", dilation);
  check_two("padding", padding);
  check_two("stride", stride);
  col2im_shape_check(self, Tensor(), output_size[0], output_size[1], kernel_size[0], kernel_size[1], dilation[0],
                     dilation[1], padding[0], padding[1], stride[0], stride[1]);
  DimVector sizes;
  if (self.dim() == 3) {
    sizes.push_back(self.size(0));
  }
  sizes.push_back(self.size(-2) / (kernel_size[0] * kernel_size[1]));
  sizes.append(output_size.begin(), output_size.end());
  set_output_raw_strided(0, sizes, {}, self.options());
}

namespace {

void check_target(const Tensor& target) {
  TORCH_CHECK(target.scalar_type() == kLong || target.scalar_type() == kInt, "expected scalar type Long but found ",
              target.scalar_type());
}

void check_multi_margin(const Tensor& self, const Tensor& target, const Scalar& p, OptionalTensorRef weight) {
  int64_t samples = 0, classes = 0;
  const std::optional<Tensor> given = weight.has_value() ? std::optional<Tensor>(*weight) : std::nullopt;
  TORCH_CHECK(p.equal(1) || p.equal(2), "only p == 1 and p == 2 supported");
  multi_margin_loss_shape_check(samples, classes, self.dim(), self, target, given);
  check_target(target);
  if (given.has_value()) {
    check_same_dtype("multi_margin_loss", self, *given);
  }
}

}  // namespace

void multi_margin_loss::meta(const Tensor& self, const Tensor& target, const Scalar& p, const Scalar&,
                             OptionalTensorRef weight, int64_t reduction) {
  check_multi_margin(self, target, p, weight);
  const IntArrayRef sizes = reduction == Reduction::None ? target.sizes() : IntArrayRef();
  set_output_raw_strided(0, sizes, {}, self.options());
}

void multi_margin_loss_backward::meta(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                                      const Scalar& p, const Scalar&, OptionalTensorRef weight, int64_t) {
  check_multi_margin(self, target, p, weight);
  check_same_dtype("multi_margin_loss_backward", self, grad_output);
  set_output_raw_strided(0, self.sizes(), {}, self.options());
}

void multilabel_margin_loss::meta(const Tensor& self, const Tensor& target, int64_t reduction) {
  int64_t samples = 0, classes = 0;
  multilabel_margin_loss_shape_check(samples, classes, self.dim(), self, target);
  check_target(target);
  const DimVector sizes = reduction == Reduction::None && self.dim() == 2 ? DimVector{samples} : DimVector{};
  set_output_raw_strided(0, sizes, {}, self.options());
  set_output_raw_strided(1, target.sizes(), {}, self.options());
}

void multilabel_margin_loss_backward::meta(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t,
                                           const Tensor& is_target) {
  int64_t samples = 0, classes = 0;
  multilabel_margin_loss_shape_check(samples, classes, self.dim(), self, target);
  check_target(target);
  check_same_dtype("multilabel_margin_loss_backward", self, grad_output);
  TORCH_CHECK(is_target.sizes() == target.sizes(), "multilabel_margin_loss_backward: expected is_target of sizes ",
              target.sizes(), ", but got ", is_target.sizes());
  set_output_raw_strided(0, self.sizes(), {}, self.options());
}

}  // namespace at::native::npu::meta_rules
