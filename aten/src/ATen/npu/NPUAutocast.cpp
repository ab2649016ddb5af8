// Mixed precision (torch.autocast("npu")): which operators run in the low dtype, which in float32, which in the widest
// of their operands. The lists are upstream's, so that a script behaves as under autocast("cuda").

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>

namespace at::autocast {
namespace {

Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: a float16 "
              "prediction rounds to 0 or 1. Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which "
              "are safe, on the values before the sigmoid.");
}

// Whether a rule that promotes leaves the tensors as they are: then no list of their casts need be made.
bool all_have(const ITensorListRef& tensors, ScalarType dtype) {
  return std::all_of(tensors.begin(), tensors.end(), [dtype](const Tensor& t) { return t.scalar_type() == dtype; });
}

ScalarType widest(const ITensorListRef& tensors) {
  return promote_type(get_lower_precision_fp_from_device_type(c10::DeviceType::PrivateUse1),
                      c10::DeviceType::PrivateUse1, tensors);
}

Tensor cat(const ITensorListRef& tensors, int64_t dim) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(DispatchKey::AutocastPrivateUse1);
  const ScalarType dtype = widest(tensors);
  if (all_have(tensors, dtype)) {
    return at::cat(tensors, dim);
  }
  return at::cat(cached_cast(dtype, tensors, c10::DeviceType::PrivateUse1), dim);
}

Tensor stack(TensorList tensors, int64_t dim) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(DispatchKey::AutocastPrivateUse1);
  const ScalarType dtype = widest(tensors);
  if (all_have(tensors, dtype)) {
    return at::stack(tensors, dim);
  }
  return at::stack(cached_cast(dtype, tensors, c10::DeviceType::PrivateUse1), dim);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define KERNEL_LOW(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define KERNEL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define KERNEL_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define KERNEL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(KERNEL_LOW)
  AT_FORALL_FP32(KERNEL_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(KERNEL_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(KERNEL_PROMOTE)
  m.impl("cat", &cat);
  m.impl("stack", &stack);
  m.impl("binary_cross_entropy", &refuse_binary_cross_entropy);
#undef KERNEL_LOW
#undef KERNEL_FP32
#undef KERNEL_FP32_SET_OPT_DTYPE
#undef KERNEL_PROMOTE
}

}  // namespace
}  // namespace at::autocast
