#pragma once
// The random generator of the device: a Philox counter, so that numbers depend on seed and offset only.

#include <ATen/core/Generator.h>
#include <ATen/npu/NPUMacros.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>

namespace at::npu {

// What a random operator gets: its numbers are Philox(seed) from the counter `offset` on.
struct PhiloxNpuState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

}  // namespace at::npu

namespace at {

// Seed and offset; shared by generators that graphsafe_set_state has tied together.
struct NPUGeneratorState : public c10::intrusive_ptr_target {
  explicit NPUGeneratorState(uint64_t seed = c10::default_rng_seed_val, uint64_t offset = 0)
      : seed(seed), philox_offset(offset) {}
  uint64_t seed;
  uint64_t philox_offset;
};

// Not thread-safe: hold `mutex_` (GeneratorImpl's) around uses, as for upstream's generators.
struct TORCH_NPU_API NPUGeneratorImpl : public c10::GeneratorImpl {
  explicit NPUGeneratorImpl(DeviceIndex device_index = -1);
  NPUGeneratorImpl(DeviceIndex device_index, c10::intrusive_ptr<NPUGeneratorState> state);
  ~NPUGeneratorImpl() override = default;

  std::shared_ptr<NPUGeneratorImpl> clone() const;
  void set_current_seed(uint64_t seed) override;  // also sets the offset to 0
  void set_offset(uint64_t offset) override;      // a multiple of 4, as Philox makes four numbers at a time
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;  // a new seed from the host's entropy
  // A CPU byte tensor of 16 bytes: seed, then offset.
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  // Hands out the current position and moves it on by `increment`, rounded up to a multiple of 4.
  npu::PhiloxNpuState philox_npu_state(uint64_t increment);

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

 private:
  NPUGeneratorImpl* clone_impl() const override;
  c10::intrusive_ptr<NPUGeneratorState> state_;
};

namespace npu::detail {

// -1 means the current device. Neither opens a device.
TORCH_NPU_API const Generator& getDefaultNPUGenerator(DeviceIndex device_index = -1);
TORCH_NPU_API Generator createNPUGenerator(DeviceIndex device_index = -1);

}  // namespace npu::detail
}  // namespace at
