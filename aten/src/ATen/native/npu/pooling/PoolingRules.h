#pragma once
// Output rules of pooling that upstream has no structured meta function for: the checks that its CPU kernels make, and
// the sizes of the results. Named by `output:` in the table.

#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>

namespace at::native::npu::meta_rules {

struct adaptive_avg_pool2d : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef output_size);
};

struct adaptive_avg_pool3d : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef output_size);
};

// Gradients of adaptive average pooling: of images as they lie, of volumes contiguous.
struct adaptive_avg_pool2d_backward : at::impl::MetaBase {
  void meta(const Tensor& grad_output, const Tensor& self);
};
struct adaptive_avg_pool3d_backward : at::impl::MetaBase {
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

}  // namespace at::native::npu::meta_rules
