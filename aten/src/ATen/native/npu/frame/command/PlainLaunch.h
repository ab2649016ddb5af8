#pragma once
// The shortest way to the device: an element-wise operator on contiguous tensors of one shape, without attributes.
// What OpCommand would find out about its operands is known, so only memory addresses differ from call to call.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/layout/Format.h>

#include <array>

namespace at::native::npu {

// `in` are up to three device tensors with the sizes, the device and one dtype in common; `out` has the same sizes.
void launch_plain(const char* ir, const TensorImpl& out, const TensorImpl* const* in, size_t count);

// False if the operands are not of this kind, and OpCommand has to look at them: no elements, a host value, or a
// storage in a private format.
template <class... T>
inline bool issue_plain(const char* ir, const Tensor& out, const T&... operands) {
  const std::array<const TensorImpl*, sizeof...(T)> in{operands.unsafeGetTensorImpl()...};
  if (out.numel() == 0) return false;
  if (C10_UNLIKELY(stored_formats.load(std::memory_order_relaxed) != 0)) {
    if (in_private_format(out) || (in_private_format(operands) || ...)) return false;
  }
  for (size_t i = 1; i < in.size(); ++i) {
    if (in[i]->is_cpu()) return false;
  }
  launch_plain(ir, *out.unsafeGetTensorImpl(), in.data(), in.size());
  return true;
}

}  // namespace at::native::npu
