#pragma once
// Output rules of margin losses that upstream has no structured meta function for: the checks that its CPU kernels
// make, and the sizes of the results. Named by `output:` in the table.

#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace at::native::npu::meta_rules {

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
