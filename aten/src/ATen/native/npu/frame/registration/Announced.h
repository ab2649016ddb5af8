#pragma once
// Results as meta and fake tensors announce them, where something else than a kernel of the device has computed them.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/accumulate.h>

namespace at::native::npu {

// What is announced empty and comes filled is read by nobody; sizes that differ otherwise are the computed ones.
inline Tensor as_announced(const Tensor& result, ScalarType dtype, IntArrayRef sizes, IntArrayRef strides) {
  const bool unread = c10::multiply_integers(sizes) == 0 && result.numel() > 0;
  if (!unread && (result.sizes() != sizes || result.strides() == strides)) return result.to(dtype);
  const Tensor arranged = at::empty_strided(sizes, strides, result.options().dtype(dtype));
  return unread ? arranged : arranged.copy_(result);
}

}  // namespace at::native::npu
