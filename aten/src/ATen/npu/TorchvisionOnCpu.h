#pragma once
// torchvision's operators for CPU tensors.

namespace at::npu {

// Registers them, once; for where torchvision's own binary, which brings them, cannot be loaded.
void provide_torchvision_on_cpu();

}  // namespace at::npu
