#pragma once
// Results as meta and fake tensors announce them, where something else than a kernel of the device has computed them.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

namespace at::native::npu {

// What is announced empty and comes filled is read by nobody. A list that is announced longer is zero at its end, as
// the device leaves it: embedding_bag's bag_size has an entry for the last offset, which the CPU leaves out. Sizes that
// differ otherwise are the computed ones.
inline Tensor as_announced(const Tensor& result, ScalarType dtype, IntArrayRef sizes, IntArrayRef strides) {
  const bool longer = sizes.size() == 1 && result.dim() == 1 && result.size(0) < sizes[0];
  if (longer) {
    const Tensor whole = at::zeros(sizes, result.options().dtype(dtype));
    whole.narrow(0, 0, result.size(0)).copy_(result);
    return whole;
  }
  const bool unread = c10::multiply_integers(sizes) == 0 && result.numel() > 0;
  if (!unread && (result.sizes() != sizes || result.strides() == strides)) return result.to(dtype);
  const Tensor arranged = at::empty_strided(sizes, strides, result.options().dtype(dtype));
  return unread ? arranged : arranged.copy_(result);
}

}  // namespace at::native::npu
