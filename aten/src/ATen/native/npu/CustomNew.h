#pragma once
// New outputs of kernels that serve npu tensors and, for shapes alone, meta tensors.

#include <ATen/core/Generator.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/npu/NPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

namespace at::native::npu {

inline Tensor new_like(const Tensor& like, IntArrayRef sizes, ScalarType dtype) {
  return like.is_meta() ? at::empty(sizes, like.options().dtype(dtype)) : empty_npu(sizes, dtype, like.device());
}
inline Tensor new_like(const Tensor& like, IntArrayRef sizes) { return new_like(like, sizes, like.scalar_type()); }
inline Tensor new_like(const Tensor& like) { return new_like(like, like.sizes()); }

// numel() refuses a tensor that is traced with symbols for its sizes; asked like this the graph is for these sizes.
inline int64_t elements(const Tensor& t) { return c10::multiply_integers(t.sizes()); }

// A new place in the random sequence of a device.
struct DrawPlace {
  int64_t seed, offset;
};
inline DrawPlace next_place(Device device) {
  auto* generator = at::check_generator<at::NPUGeneratorImpl>(at::npu::detail::getDefaultNPUGenerator(device.index()));
  const std::lock_guard<std::mutex> lock(generator->mutex_);
  const at::npu::PhiloxNpuState state = generator->philox_npu_state(4);
  return {static_cast<int64_t>(state.seed), static_cast<int64_t>(state.offset)};
}

// Operators that compute in fp32 whatever they are given: float64 would lose what it is used for.
inline void check_single(const char* name, const Tensor& t) {
  const ScalarType type = t.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(type == kFloat || type == kHalf || type == kBFloat16, '"', name,
                              "\" not implemented for '", toString(type), "'");
}

inline const char* overlap_mode(int64_t mode) {
  TORCH_CHECK(mode == 0 || mode == 1, "mode is 0 (intersection over union) or 1 (over foreground), got ", mode);
  return mode == 1 ? "iof" : "iou";
}

}  // namespace at::native::npu
