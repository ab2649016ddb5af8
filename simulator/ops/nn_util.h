#pragma once
// Small helpers shared by the neural-network operators.

#include <ATen/ATen.h>

#include "exec/definition/op.h"

namespace acl_sim {

inline bool is_low_precision(const at::Tensor& t) {
  return t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16;
}

// fp16 and bf16 as fp32, in the same strides; everything else as it is.
inline at::Tensor widen(const at::Tensor& t) { return t.defined() && is_low_precision(t) ? t.to(at::kFloat) : t; }

inline at::Tensor optional_in(OpContext& c, size_t i) { return c.has_input(i) ? c.in(i) : at::Tensor(); }

inline std::optional<at::Tensor> some(const at::Tensor& t) {
  return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
}

// True where the device keeps (or would keep) the tensor channels-last: a 4-D image-like tensor.
inline bool is_image(const at::Tensor& t) { return t.dim() == 4; }

inline bool stored_channels_last(const at::Tensor& t) {
  return t.dim() == 4 && !t.is_contiguous() && t.is_contiguous(at::MemoryFormat::ChannelsLast);
}

// at::Reduction's value of an IR reduction name.
int64_t reduction_of(const std::string& name);

[[noreturn]] inline void refuse(const std::string& reason) { throw OpError(ACL_ERROR_INVALID_PARAM, reason); }

}  // namespace acl_sim
