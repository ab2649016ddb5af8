#pragma once
// The short way of generated kernels: operands of which a few comparisons show that the result has the first one's
// shape, so that upstream's meta function need not run.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <c10/core/TensorImpl.h>

namespace at::native::npu {

namespace fast {

inline bool plain(const TensorImpl& t, DtypeMask classes) {
  return t.device_type() == kPrivateUse1 && t.is_contiguous() &&
         (dtype_bit(typeMetaToScalarType(t.dtype())) & classes) != 0;
}

inline bool alike(const TensorImpl& a, const TensorImpl& b) {
  return &a == &b ||
         (b.device() == a.device() && b.dtype() == a.dtype() && b.is_contiguous() && a.sizes() == b.sizes());
}

// A Python number, which arrives as a 0-d CPU tensor, leaves the dtype of a device tensor of its own or a higher
// category as it is. With it upstream keeps the strides of images of one pixel, which are contiguous in both orders.
inline bool harmless_number(const TensorImpl& a, const TensorImpl& number) {
  if (!number.is_wrapped_number() || !number.is_cpu()) return false;
  if (a.is_strides_like_channels_last() || a.is_strides_like_channels_last_3d()) return false;
  const DtypeMask mine = dtype_bit(typeMetaToScalarType(a.dtype()));
  const DtypeMask its = dtype_bit(typeMetaToScalarType(number.dtype()));
  if ((mine & kDtypeFloat) != 0) return (its & kDtypeComplex) == 0;
  return (mine & kDtypeInt) != 0 && (its & (kDtypeInt | kDtypeBool)) != 0;
}

}  // namespace fast

[[gnu::flatten]] inline bool fast_operands(DtypeMask classes, const Tensor& a) {
  return fast::plain(*a.unsafeGetTensorImpl(), classes);
}

[[gnu::flatten]] inline bool fast_operands(DtypeMask classes, const Tensor& a, const Tensor& b) {
  const TensorImpl& x = *a.unsafeGetTensorImpl();
  const TensorImpl& y = *b.unsafeGetTensorImpl();
  return fast::plain(x, classes) && (fast::alike(x, y) || fast::harmless_number(x, y));
}

[[gnu::flatten]] inline bool fast_operands(DtypeMask classes, const Tensor& a, const Tensor& b, const Tensor& c) {
  const TensorImpl& x = *a.unsafeGetTensorImpl();
  return fast::plain(x, classes) && fast::alike(x, *b.unsafeGetTensorImpl()) &&
         fast::alike(x, *c.unsafeGetTensorImpl());
}

// True if `target` can take the result for operands that passed fast_operands: right shape and dtype, and no memory
// shared with an operand other than the target itself.
template <class... T>
[[gnu::flatten]] inline bool fast_target(const Tensor& target, ScalarType dtype, const Tensor& first,
                                         const T&... rest) {
  const TensorImpl& t = *target.unsafeGetTensorImpl();
  const TensorImpl& f = *first.unsafeGetTensorImpl();
  if (typeMetaToScalarType(t.dtype()) != dtype || t.device() != f.device() || !t.is_contiguous() ||
      t.sizes() != f.sizes()) {
    return false;
  }
  const auto apart = [&](const Tensor& operand) {
    const TensorImpl& o = *operand.unsafeGetTensorImpl();
    return &o == &t || o.unsafe_storage().unsafeGetStorageImpl() != t.unsafe_storage().unsafeGetStorageImpl();
  };
  return apart(first) && (apart(rest) && ...);
}

}  // namespace at::native::npu
