// See the header.

#include <ATen/native/npu/pooling/PoolingRules.h>

#include <ATen/native/AdaptivePooling.h>
#include <ATen/native/Pool.h>
#include <ATen/native/npu/frame/inference/ShapeRules.h>
#include <ATen/native/npu/frame/inference/Windows.h>

namespace at::native::npu::meta_rules {
namespace {

void check_length(const char* name, const char* argument, IntArrayRef values, size_t length) {
  TORCH_CHECK(values.size() == length || values.size() == 1, name, ": ", argument, " must be one int or ", length,
              " ints, but got ", values.size());
}

void check_positive(const Tensor& self, const char* name, int64_t from) {
  for (int64_t i = from; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0, name,
                "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ", self.sizes(),
                " with dimension ", i, " being empty.");
  }
}

void check_adaptive_backward(const char* name, const Tensor& grad_output, const Tensor& self) {
  adaptive_pool_empty_output_check(grad_output, name);
  TORCH_CHECK(grad_output.dim() == self.dim(), name, ": expected grad_output with ", self.dim(),
              " dimensions, but got ", grad_output.sizes());
  check_same_dtype(name, self, grad_output);
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
  check_positive(self, "adaptive_avg_pool2d", self.dim() - 2);
  set_output_raw_strided(0, with_last(self, output_size), {}, layout_of(self, 4));
}

void adaptive_avg_pool3d::meta(const Tensor& self, IntArrayRef output_size) {
  TORCH_CHECK(output_size.size() == 3, "adaptive_avg_pool3d: output_size must be 3");
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5, "adaptive_avg_pool3d(): Expected 4D or 5D tensor, but got ",
              self.sizes());
  check_positive(self, "adaptive_avg_pool3d", 1);
  set_output_raw_strided(0, with_last(self, output_size), {}, self.options());
}

void adaptive_avg_pool2d_backward::meta(const Tensor& grad_output, const Tensor& self) {
  check_adaptive_backward("adaptive_avg_pool2d_backward", grad_output, self);
  set_output_raw_strided(0, self.sizes(), {}, layout_of(self, 4));
}

void adaptive_avg_pool3d_backward::meta(const Tensor& grad_output, const Tensor& self) {
  check_adaptive_backward("adaptive_avg_pool3d_backward", grad_output, self);
  set_output_raw_strided(0, self.sizes(), {}, self.options());
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

}  // namespace at::native::npu::meta_rules
