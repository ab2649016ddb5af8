#pragma once
// Places in a device's sequence of random numbers.

#include <ATen/core/Generator.h>
#include <ATen/npu/NPUGeneratorImpl.h>

namespace at::native::npu {

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

}  // namespace at::native::npu
