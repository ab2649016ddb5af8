// See the header.

#include <ATen/native/npu/loss/MarginLossRules.h>

#include <ATen/native/LossMulti.h>
#include <ATen/native/npu/frame/inference/ShapeRules.h>

namespace at::native::npu::meta_rules {
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
