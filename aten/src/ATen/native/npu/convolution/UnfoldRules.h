#pragma once
// Output rules of sliding blocks that upstream has no structured meta function for: the checks that its CPU kernels
// make, and the sizes of the results. Named by `output:` in the table.

#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>

namespace at::native::npu::meta_rules {

struct im2col : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef kernel_size, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride);
};

struct col2im : at::impl::MetaBase {
  void meta(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size, IntArrayRef dilation,
            IntArrayRef padding, IntArrayRef stride);
};

}  // namespace at::native::npu::meta_rules
