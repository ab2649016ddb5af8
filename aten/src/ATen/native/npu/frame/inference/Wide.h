#pragma once
// Operators that are made of several and compute half precision in fp32.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace at::native::npu {

inline ScalarType wide_type(const Tensor& t) { return t.scalar_type() == kDouble ? kDouble : kFloat; }

inline void check_floating(const char* name, const Tensor& t) { check_dtype(t.scalar_type(), kDtypeFloat, name); }

inline bool given(const std::optional<Tensor>& t) { return t.has_value() && t->defined(); }

// One operator for autocast, whatever it is made of: what is computed in fp32 inside of it stays in fp32.
struct NoAutocast : c10::impl::ExcludeDispatchKeyGuard {
  NoAutocast() : ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey::AutocastPrivateUse1)) {}
};

}  // namespace at::native::npu
