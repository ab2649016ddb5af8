// A format cast leaves values as they are, so its gradient is the gradient.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/npu/frame/layout/Format.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>

namespace at::native::npu {
namespace {

struct FormatCast : Function<FormatCast> {
  static Tensor forward(AutogradContext*, const Tensor& self, int64_t acl_format,
                        std::optional<int64_t> customize_dtype) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return NPU_CUSTOM_OP(npu_format_cast, "npu_format_cast", "").call(self, acl_format, customize_dtype);
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0], Tensor(), Tensor()}; }
};

struct FormatCastLike : Function<FormatCastLike> {
  static Tensor forward(AutogradContext*, const Tensor& self, const Tensor& dst,
                        std::optional<int64_t> customize_dtype) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return NPU_CUSTOM_OP(npu_format_cast_like, "npu_format_cast", "Tensor").call(self, dst, customize_dtype);
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0], Tensor(), Tensor()}; }
};

// A cast that changes nothing gives the tensor itself, which autograd knows already.
bool is_itself(const Tensor& self, int64_t acl_format, std::optional<int64_t> customize_dtype) {
  return self.is_privateuseone() && !self.key_set().has(DispatchKey::Python) && self.has_storage() &&
         already_in(self, acl_format, block_for(self, acl_format, customize_dtype));
}

}  // namespace

Tensor format_cast_autograd(const Tensor& self, int64_t acl_format, std::optional<int64_t> customize_dtype) {
  if (is_itself(self, acl_format, customize_dtype)) return self;
  return FormatCast::apply(self, acl_format, customize_dtype);
}

Tensor format_cast_like_autograd(const Tensor& self, const Tensor& dst, std::optional<int64_t> customize_dtype) {
  if (dst.is_privateuseone() && dst.has_storage() && is_itself(self, format_of(dst), customize_dtype)) return self;
  return FormatCastLike::apply(self, dst, customize_dtype);
}

// No value changes, so no version is counted and no history is kept.
Tensor& format_cast_inplace_autograd(Tensor& self, int64_t acl_format, std::optional<int64_t> customize_dtype) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return NPU_CUSTOM_OP(npu_format_cast_, "npu_format_cast_", "acl_format").call(self, acl_format, customize_dtype);
}

}  // namespace at::native::npu
