#pragma once
// Places in a device's sequence of random numbers.

#include <ATen/core/Generator.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/npu/NPUGeneratorImpl.h>
#include <c10/npu/NPUGraphsC10Utils.h>

namespace at::native::npu {

// A place in a random sequence. In a capture it is `captured`, see Note [Random numbers in a graph].
struct DrawPlace {
  int64_t seed, offset;
  Tensor captured{};
};

inline DrawPlace next_place(at::NPUGeneratorImpl* generator) {
  const std::lock_guard<std::mutex> lock(generator->mutex_);
  at::npu::PhiloxNpuState state = generator->philox_npu_state(4);
  return {static_cast<int64_t>(state.seed), static_cast<int64_t>(state.offset), std::move(state.captured)};
}

inline DrawPlace next_place(Device device) {
  auto* generator = at::check_generator<at::NPUGeneratorImpl>(at::npu::detail::getDefaultNPUGenerator(device.index()));
  return next_place(generator);
}

// The same for who needs the numbers themselves: `what` cannot be captured.
inline DrawPlace next_numbers(Device device, const char* what) {
  c10::npu::assert_not_capturing(c10::npu::getCurrentNPUStream(device.index()), what);
  return next_place(device);
}

// Operands of a random operator: one number, and the pairs (0, offset) and (seed, offset).
inline void add_seed(OpCommand& cmd, const DrawPlace& place) {
  place.captured.defined() ? cmd.Input(place.captured.narrow(0, 0, 1)) : cmd.Input(IntArrayRef(place.seed));
}
inline void add_offset(OpCommand& cmd, const DrawPlace& place) {
  place.captured.defined() ? cmd.Input(place.captured.narrow(0, 1, 1)) : cmd.Input(IntArrayRef(place.offset));
}
inline void add_counter(OpCommand& cmd, const DrawPlace& place) {
  place.captured.defined() ? cmd.Input(place.captured.narrow(0, 2, 2)) : cmd.Input(IntArrayRef({0, place.offset}));
}
inline void add_seed_and_offset(OpCommand& cmd, const DrawPlace& place) {
  place.captured.defined() ? cmd.Input(place.captured.narrow(0, 0, 2))
                           : cmd.Input(IntArrayRef({place.seed, place.offset}));
}

}  // namespace at::native::npu
