#pragma once
// Output rules of padding that upstream has no structured meta function for: the checks that its CPU kernels make, and
// the sizes of the results. Named by `output:` in the table.

#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>

namespace at::native::npu::meta_rules {

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

}  // namespace at::native::npu::meta_rules
