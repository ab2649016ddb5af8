// Seed, offset and their 16-byte form; the default generators.

#include <ATen/npu/NPUGeneratorImpl.h>

#include <ATen/Context.h>
#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUGraphsC10Utils.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>

namespace at {

namespace {

constexpr uint64_t kPhiloxNumbers = 4;  // made by one step of the counter
constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

uint64_t whole_steps(uint64_t numbers) { return (numbers + kPhiloxNumbers - 1) / kPhiloxNumbers * kPhiloxNumbers; }

// Refuses to change where a generator stands while a graph is captured that will move it on.
void refuse_in_capture(const NPUGeneratorState& state, const char* what) {
  TORCH_CHECK(state.captures.empty(), what,
              " of a generator that is registered with a graph under capture: set the generator before the capture, or "
              "between replays");
}

}  // namespace

NPUGeneratorImpl::NPUGeneratorImpl(DeviceIndex device_index)
    : NPUGeneratorImpl(device_index, c10::make_intrusive<NPUGeneratorState>()) {}

NPUGeneratorImpl::NPUGeneratorImpl(DeviceIndex device_index, c10::intrusive_ptr<NPUGeneratorState> state)
    : c10::GeneratorImpl(Device(DeviceType::PrivateUse1, device_index), DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

std::shared_ptr<NPUGeneratorImpl> NPUGeneratorImpl::clone() const {
  return std::shared_ptr<NPUGeneratorImpl>(clone_impl());
}

NPUGeneratorImpl* NPUGeneratorImpl::clone_impl() const {
  auto state = c10::make_intrusive<NPUGeneratorState>(state_->seed, state_->philox_offset);
  return new NPUGeneratorImpl(device().index(), std::move(state));
}

void NPUGeneratorImpl::set_current_seed(uint64_t seed) {
  if (!state_->captures.empty() && seed == state_->seed) return;
  refuse_in_capture(*state_, "Setting the seed");
  state_->seed = seed;
  state_->philox_offset = 0;
}

void NPUGeneratorImpl::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % kPhiloxNumbers == 0, "offset must be a multiple of ", kPhiloxNumbers, ", but got: ", offset);
  refuse_in_capture(*state_, "Setting the offset");
  state_->philox_offset = offset;
}

uint64_t NPUGeneratorImpl::get_offset() const {
  refuse_in_capture(*state_, "Reading the offset");
  return state_->philox_offset;
}

uint64_t NPUGeneratorImpl::current_seed() const { return state_->seed; }

uint64_t NPUGeneratorImpl::seed() {
  const uint64_t seed = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
  set_current_seed(seed);
  return seed;
}

c10::intrusive_ptr<c10::TensorImpl> NPUGeneratorImpl::get_state() const {
  Tensor state = at::empty({static_cast<int64_t>(kStateBytes)}, TensorOptions().dtype(kByte).device(kCPU));
  const std::array<uint64_t, 2> values = {state_->seed, state_->philox_offset};
  std::memcpy(state.mutable_data_ptr(), values.data(), kStateBytes);
  return state.getIntrusivePtr();
}

void NPUGeneratorImpl::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  const auto bytes = static_cast<size_t>(new_state.numel());
  // A seed alone stands for the beginning of its sequence, as for CUDA's generator.
  TORCH_CHECK(bytes == kStateBytes || bytes == sizeof(uint64_t),
              "RNG state is wrong size: an npu generator's state has ", kStateBytes, " bytes, but got ", bytes);
  std::array<uint64_t, 2> values = {0, 0};
  std::memcpy(values.data(), new_state.data(), bytes);
  set_current_seed(values[0]);
  set_offset(values[1]);
}

void NPUGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  auto npu_generator = c10::dynamic_intrusive_pointer_cast<NPUGeneratorImpl>(state);
  TORCH_CHECK(npu_generator, "Expected an npu generator");
  state_ = npu_generator->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> NPUGeneratorImpl::graphsafe_get_state() const {
  return c10::make_intrusive<NPUGeneratorImpl>(device().index(), state_);
}

npu::PhiloxNpuState NPUGeneratorImpl::philox_npu_state(uint64_t increment) {
  if (C10_UNLIKELY(c10::npu::is_any_capture_under_way())) {
    aclmdlRI graph = nullptr;
    c10::npu::capture_status(c10::npu::getCurrentNPUStream(device().index()), &graph);
    if (graph != nullptr) {
      const auto found = state_->captures.find(graph);
      TORCH_CHECK(found != state_->captures.end(),
                  "A random operator uses a generator that is not registered with the graph under capture: call "
                  "NPUGraph.register_generator_state(generator) before the capture");
      npu::CapturedDraws& draws = *found->second;
      Tensor place = at::add(draws.start, draws.step, static_cast<int64_t>(draws.drawn));
      draws.drawn += whole_steps(increment);
      return {0, 0, std::move(place)};
    }
  }
  npu::PhiloxNpuState position{state_->seed, state_->philox_offset, {}};
  state_->philox_offset += whole_steps(increment);
  return position;
}

namespace npu::detail {

namespace {

DeviceIndex resolve(DeviceIndex device_index) {
  const DeviceIndex index = device_index == -1 ? c10::npu::current_device() : device_index;
  c10::npu::detail::check_device_index(index);
  return index;
}

}  // namespace

const Generator& getDefaultNPUGenerator(DeviceIndex device_index) {
  struct Slot {
    std::once_flag once;
    Generator generator;
  };
  // Never destroyed: generators may be used during static destruction.
  static auto* slots = new std::array<Slot, C10_COMPILE_TIME_MAX_NPUS>;
  const DeviceIndex index = resolve(device_index);
  Slot& slot = (*slots)[static_cast<size_t>(index)];
  std::call_once(slot.once, [&] {
    slot.generator = make_generator<NPUGeneratorImpl>(index);
    slot.generator.seed();
  });
  return slot.generator;
}

Generator createNPUGenerator(DeviceIndex device_index) {
  auto generator = make_generator<NPUGeneratorImpl>(resolve(device_index));
  generator.set_current_seed(default_rng_seed_val);
  return generator;
}

}  // namespace npu::detail
}  // namespace at
