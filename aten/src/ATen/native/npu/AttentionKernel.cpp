// Scaled dot product attention: upstream asks the device which implementation to use, and this one has the composite of
// matrix products and softmax.

#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

int64_t fused_sdp_choice(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool,
                         std::optional<double>, bool) {
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

}  // namespace at::native::npu

namespace at::native {

// The composite attention asks this stub where the device type has one, before the operator above.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &npu::fused_sdp_choice)

}  // namespace at::native
