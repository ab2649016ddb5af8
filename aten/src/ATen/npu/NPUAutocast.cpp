// Mixed precision (torch.autocast("npu")): which operators run in the low dtype, which in float32, which in the widest
// of their operands. The lists are upstream's, so that a script behaves as under autocast("cuda").

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {
namespace {

Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: a float16 "
              "prediction rounds to 0 or 1. Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which "
              "are safe, on the values before the sigmoid.");
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
  KERNEL_PRIVATEUSEONE(cat, promote)
  KERNEL_PRIVATEUSEONE(stack, promote)
  m.impl("binary_cross_entropy", &refuse_binary_cross_entropy);
#undef KERNEL_LOW
#undef KERNEL_FP32
#undef KERNEL_FP32_SET_OPT_DTYPE
#undef KERNEL_PROMOTE
}

}  // namespace
}  // namespace at::autocast
