// A format cast leaves values as they are, so its gradient is the gradient.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/npu/CustomAutograd.h>

namespace at::native::npu {
namespace {

struct FormatCast : Function<FormatCast> {
  static Tensor forward(AutogradContext*, const Tensor& self, int64_t acl_format) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return NPU_CUSTOM_OP(npu_format_cast, "npu_format_cast", "").call(self, acl_format);
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0], Tensor()}; }
};

struct FormatCastLike : Function<FormatCastLike> {
  static Tensor forward(AutogradContext*, const Tensor& self, const Tensor& dst) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return NPU_CUSTOM_OP(npu_format_cast_like, "npu_format_cast", "Tensor").call(self, dst);
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0], Tensor()}; }
};

}  // namespace

Tensor format_cast_autograd(const Tensor& self, int64_t acl_format) { return FormatCast::apply(self, acl_format); }

Tensor format_cast_like_autograd(const Tensor& self, const Tensor& dst) { return FormatCastLike::apply(self, dst); }

// No value changes, so no version is counted and no history is kept.
Tensor& format_cast_inplace_autograd(Tensor& self, int64_t acl_format) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return NPU_CUSTOM_OP(npu_format_cast_, "npu_format_cast_", "acl_format").call(self, acl_format);
}

}  // namespace at::native::npu
