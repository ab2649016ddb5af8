#pragma once
// Where attention in blocks does not apply, whichever operator asks for it.

#include <ATen/core/Tensor.h>

namespace at::native::npu {

// Neither a batching rule nor a forward derivative exists for attention in blocks; its composite has both. What lies
// below a wrapper of torch.func cannot be told from here, so all of its transforms take the composite.
inline bool transformed(const Tensor& t) {
  constexpr c10::DispatchKeySet kWrappers{c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper};
  return t.key_set().has_any(kWrappers) || t._fw_grad(/*level=*/0).defined();
}

}  // namespace at::native::npu
