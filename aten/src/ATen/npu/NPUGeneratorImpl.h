#pragma once
// The random generator of the device: a Philox counter, so that numbers depend on seed and offset only.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/npu/NPUMacros.h>
#include <acl/acl.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <map>
#include <memory>

namespace at::npu {

// What a random operator gets: its numbers are Philox(seed) from the counter `offset` on. In a capture both are known
// only when the graph is replayed: `captured` then holds, on the device, seed, offset, 0, offset as int64.
struct PhiloxNpuState {
  uint64_t seed = 0;
  uint64_t offset = 0;
  Tensor captured{};
};

// Note [Random numbers in a graph]
// A graph draws anew at each replay: the numbers that the program would draw if it ran the same operators then. So a
// captured operator reads its place in the sequence from device memory. `start` is where the graph begins, and each
// replay fills it before the graph runs; a draw adds what was drawn before it in the graph, by an operator that is
// captured, too. The generator then moves on by all that the graph draws.
struct CapturedDraws {
  Tensor start;  // seed, offset, 0, offset
  Tensor step;   // 0, 1, 0, 1
  uint64_t drawn = 0;
};

}  // namespace at::npu

namespace at {

// Seed and offset; shared by generators that graphsafe_set_state has tied together.
struct NPUGeneratorState : public c10::intrusive_ptr_target {
  explicit NPUGeneratorState(uint64_t seed = c10::default_rng_seed_val, uint64_t offset = 0)
      : seed(seed), philox_offset(offset) {}
  uint64_t seed;
  uint64_t philox_offset;
  // Of the captures that the generator is registered with, by ACL's handle of the graph.
  std::map<aclmdlRI, std::shared_ptr<npu::CapturedDraws>> captures;
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
  const c10::intrusive_ptr<NPUGeneratorState>& state() const { return state_; }

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
