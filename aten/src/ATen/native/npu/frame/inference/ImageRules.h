#pragma once
// Output rules for operators over images, volumes and class scores that upstream has no structured meta function for:
// the checks that its CPU kernels make, and the sizes of the results. Named by `output:` in the operator table.

#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace at::native::npu::meta_rules {

struct adaptive_avg_pool2d : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef output_size);
};
struct adaptive_avg_pool3d : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef output_size);
};

// Gradients of adaptive average pooling, in two and three dimensions.
struct adaptive_pool_backward : at::impl::MetaBase {
  void meta(const Tensor& grad_output, const Tensor& self);
};

struct max_pool3d : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
            bool ceil_mode);
};
struct max_pool3d_backward : at::impl::MetaBase {
  void meta(const Tensor& grad_output, const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
            IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, const Tensor& indices);
};
struct fractional_max_pool3d_backward : at::impl::MetaBase {
  void meta(const Tensor& grad_output, const Tensor& self, IntArrayRef kernel_size, IntArrayRef output_size,
            const Tensor& indices);
};
struct max_unpool2d : at::impl::MetaBase {
  void meta(const Tensor& self, const Tensor& indices, IntArrayRef output_size);
};
struct max_unpool3d : at::impl::MetaBase {
  void meta(const Tensor& self, const Tensor& indices, IntArrayRef output_size, IntArrayRef stride,
            IntArrayRef padding);
};

struct reflection_pad2d : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef padding);
};
// As upstream's, but channels-last stays.
struct replication_pad2d : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef padding);
};
// Gradients of padding, reflected or replicated.
struct pad2d_backward : at::impl::MetaBase {
  void meta(const Tensor& grad_output, const Tensor& self, IntArrayRef padding);
};
struct pad3d_backward : at::impl::MetaBase {
  void meta(const Tensor& grad_output, const Tensor& self, IntArrayRef padding);
};

struct im2col : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef kernel_size, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride);
};
struct col2im : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size, IntArrayRef dilation,
            IntArrayRef padding, IntArrayRef stride);
};

struct multi_margin_loss : at::impl::MetaBase {
  void meta(const Tensor& self, const Tensor& target, const Scalar& p, const Scalar& margin, OptionalTensorRef weight,
            int64_t reduction);
};
struct multi_margin_loss_backward : at::impl::MetaBase {
  void meta(const Tensor& grad_output, const Tensor& self, const Tensor& target, const Scalar& p, const Scalar& margin,
            OptionalTensorRef weight, int64_t reduction);
};
struct multilabel_margin_loss : at::impl::MetaBase {
  void meta(const Tensor& self, const Tensor& target, int64_t reduction);
};
struct multilabel_margin_loss_backward : at::impl::MetaBase {
  void meta(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t reduction,
            const Tensor& is_target);
};

}  // namespace at::native::npu::meta_rules
