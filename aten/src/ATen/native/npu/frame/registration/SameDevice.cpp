// What is said of operands on two devices, in upstream's words.

#include <ATen/native/npu/frame/registration/SameDevice.h>

namespace at::native::npu {

void SameDevice::refuse(Device other) const {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", common_,
              " and ", other, "! (when checking arguments of ", op_, ")");
}

}  // namespace at::native::npu
