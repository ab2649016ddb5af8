// One allocator per device behind c10's interface, and the settings from the environment.

#include <c10/npu/NPUCachingAllocator.h>

#include <c10/npu/NPUOptions.h>

#include <acl_loader.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUTaskQueue.h>
#include <c10/npu/impl/DeviceCachingAllocator.h>
#include <c10/npu/impl/Trace.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <utility>

namespace c10::npu::NPUCachingAllocator {

namespace {

// Options of the plug-in's allocator that say how it asks CANN for memory: scripts for cards have them.
constexpr std::string_view kWithoutEffect[] = {"base_addr_aligned_kb", "multi_stream_lazy_reclaim", "page_size",
                                               "pin_memory_expandable_segments", "pinned_mem_register"};

// The settings without those, each of which is told.
std::string with_effect(std::string_view settings) {
  std::string kept;
  int brackets = 0;
  for (size_t begin = 0, at = 0; at <= settings.size(); ++at) {
    const char c = at < settings.size() ? settings[at] : ',';
    brackets += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != ',' || (brackets > 0 && at < settings.size())) continue;
    const std::string_view option = settings.substr(begin, at - begin);
    begin = at + 1;
    const std::string_view key = option.substr(0, option.find(':'));
    if (std::find(std::begin(kWithoutEffect), std::end(kWithoutEffect), key) != std::end(kWithoutEffect)) {
      TORCH_WARN("Environment variable PYTORCH_NPU_ALLOC_CONF: ", option, " has no effect here");
    } else {
      kept.append(kept.empty() ? "" : ",").append(option);
    }
  }
  return kept;
}

// Errors name the variable.
void apply_variable(const char* settings) {
  std::string reason;
  try {
    if (const std::string kept = with_effect(settings); !kept.empty()) setAllocatorSettings(kept);
    return;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception&) {
    reason = "a value is not a number, or out of range";
  }
  TORCH_CHECK_VALUE(false, "Environment variable PYTORCH_NPU_ALLOC_CONF='", settings, "' is refused: ", reason);
}

// Reads PYTORCH_NPU_ALLOC_CONF once; PYTORCH_ALLOC_CONF is read by c10 itself.
void apply_environment() {
  static const bool applied = [] {
    if (const char* settings = environment("PYTORCH_NPU_ALLOC_CONF"); settings != nullptr && *settings != '\0') {
      apply_variable(settings);
    }
    apply_settings();
    return true;
  }();
  static_cast<void>(applied);
}

// Settings may also come through c10 (torch._C._accelerator_setAllocatorSettings).
const CachingAllocator::DeviceConfigParserHookRegistry hook([](const std::string&) { apply_settings(); }, {});

// The deleters of DataPtrs tell the device, which the address alone does not: delete_on[i] is for npu:i.
template <size_t device>
void delete_block(void* ptr);

template <size_t... devices>
constexpr std::array<DeleterFnPtr, sizeof...(devices)> deleters(std::index_sequence<devices...>) {
  return {&delete_block<devices>...};
}
constexpr auto delete_on = deleters(std::make_index_sequence<C10_COMPILE_TIME_MAX_NPUS>());

// For who knows the address only.
void delete_anywhere(void* ptr);

class NativeCachingAllocator final : public NPUAllocator {
 public:
  DataPtr allocate(size_t size) override {
    const DeviceIndex device = activate_device();
    void* ptr = size == 0 ? nullptr : malloc(device, size, getCurrentNPUStream(device));
    return {ptr, ptr, delete_on[static_cast<size_t>(device)], Device(DeviceType::PrivateUse1, device)};
  }
  DeleterFnPtr raw_deleter() const override { return &delete_anywhere; }
  void copy_data(void* dest, const void* src, size_t count) const override {
    memcpy_async(dest, src, count, ACL_MEMCPY_DEVICE_TO_DEVICE, getCurrentNPUStream());
  }

  void* raw_alloc(size_t nbytes) override {
    return nbytes == 0 ? nullptr : raw_alloc_with_stream(nbytes, getCurrentNPUStream());
  }
  void* raw_alloc_with_stream(size_t nbytes, NPUStream stream) override {
    if (nbytes == 0) {
      return nullptr;
    }
    const NPUGuard guard(stream.device_index());
    return malloc(activate_device(), nbytes, stream);
  }
  void raw_delete(void* ptr) override {
    TORCH_CHECK(ptr == nullptr || delete_of_any_device(ptr), "Invalid device pointer: ", ptr,
                " was not allocated by the NPU allocator");
  }

  // From destructors: these do not throw.
  void delete_of_device(void* ptr, DeviceIndex device) noexcept {
    trace_deletion(ptr);
    auto* allocator = devices_[static_cast<size_t>(device)].load(std::memory_order_acquire);
    const size_t size = ptr == nullptr || allocator == nullptr ? 0 : allocator->free(ptr);
    if (C10_LIKELY(size > 0)) {
      report(ptr, -static_cast<int64_t>(size), device);
    }
  }
  bool delete_of_any_device(void* ptr) noexcept {
    trace_deletion(ptr);
    for (const auto device : c10::irange(devices_.size())) {
      auto* allocator = devices_[device].load(std::memory_order_acquire);
      if (const size_t size = allocator == nullptr ? 0 : allocator->free(ptr)) {
        report(ptr, -static_cast<int64_t>(size), static_cast<DeviceIndex>(device));
        return true;
      }
    }
    return false;
  }

  bool initialized() override {
    for (const auto& slot : devices_) {
      if (slot.load(std::memory_order_acquire) != nullptr) {
        return true;
      }
    }
    return false;
  }

  void emptyCache(MempoolId_t pool) override {
    for (const auto& slot : devices_) {
      if (auto* allocator = slot.load(std::memory_order_acquire)) {
        allocator->empty_cache(pool);
        const NPUGuard guard(static_cast<DeviceIndex>(&slot - devices_.data()));
        trace_wait();
      }
    }
  }

  void recordStream(const DataPtr& ptr, Stream stream) override {
    // Memory that came from elsewhere (from_blob, another process) is not ours to keep.
    const auto device = static_cast<size_t>(ptr.device().index());
    if (ptr.get() == nullptr || ptr.get_deleter() != delete_on.at(device)) {
      return;
    }
    TORCH_CHECK(device_allocator(ptr.device().index()).record_stream(ptr.get(), NPUStream(stream)),
                "No allocated block can be found for the pointer: ", ptr.get());
  }

  void eraseStream(void* ptr, NPUStream stream) override {
    const auto device = getDeviceOf(ptr);
    TORCH_CHECK(device.has_value() && device_allocator(*device).erase_stream(ptr, stream),
                "No allocated block can be found for the pointer: ", ptr);
  }

  DeviceStats getDeviceStats(DeviceIndex device) override { return checked(device).stats(); }
  void resetAccumulatedStats(DeviceIndex device) override { checked(device).reset_accumulated_stats(); }
  void resetPeakStats(DeviceIndex device) override { checked(device).reset_peak_stats(); }

  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    const NPUGuard guard(device);
    activate_device();
    size_t free = 0, total = 0;
    NPU_CHECK(acl::aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
    return {free, total};
  }

  double getMemoryFraction(DeviceIndex device) override { return checked(device).memory_fraction(); }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1, "Invalid fraction value: ", fraction,
                      ". Allowed range: 0.0 to 1.0");
    checked(device).set_memory_fraction(fraction);
  }

  size_t cacheInfo(DeviceIndex device) override { return checked(device).largest_free_block(); }

  void* getBaseAllocation(void* ptr, size_t* size) override {
    for (const auto& slot : devices_) {
      auto* allocator = slot.load(std::memory_order_acquire);
      if (const auto segment = allocator != nullptr ? allocator->segment_of(ptr) : std::nullopt) {
        if (size != nullptr) {
          *size = segment->second;
        }
        return segment->first;
      }
    }
    TORCH_CHECK(false, "Invalid device pointer: ", ptr, " was not allocated by the NPU allocator");
  }

  std::optional<DeviceIndex> getDeviceOf(const void* ptr) override {
    for (const auto device : c10::irange(devices_.size())) {
      auto* allocator = devices_[device].load(std::memory_order_acquire);
      if (allocator != nullptr && allocator->segment_of(ptr).has_value()) {
        return static_cast<DeviceIndex>(device);
      }
    }
    return std::nullopt;
  }

  bool isFree(DeviceIndex device, const void* ptr) override {
    auto* allocator = devices_.at(static_cast<size_t>(device)).load(std::memory_order_acquire);
    return allocator != nullptr && allocator->is_known_free(ptr);
  }

  SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override {
    SnapshotInfo result;
    for (const auto device : c10::irange(device_count())) {
      auto* allocator = devices_[static_cast<size_t>(device)].load(std::memory_order_acquire);
      auto& trace = result.device_traces.emplace_back();
      if (allocator != nullptr) {
        auto segments = allocator->snapshot(pool);
        std::move(segments.begin(), segments.end(), std::back_inserter(result.segments));
        if (include_traces) {
          trace = allocator->trace();
          if (pool != kPublicPool) {
            std::erase_if(trace, [&](const TraceEntry& entry) { return entry.mempool_ != pool; });
          }
        }
      }
    }
    return result;
  }

  bool isHistoryEnabled() override { return history_enabled_.load(); }

  void recordHistory(bool enabled, CreateContextFn context_recorder, size_t max_entries, RecordContext when,
                     bool clear) override {
    history_enabled_.store(enabled);
    for (const auto device : c10::irange(device_count())) {
      device_allocator(device).record_history(enabled, context_recorder, max_entries, when, clear);
    }
  }

  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override {
    for (const auto device : c10::irange(device_count())) {
      device_allocator(device).attach_oom_observer(observer);
    }
  }

  std::string name() override { return "native"; }

  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, std::shared_ptr<NPUAllocator> source) override {
    checked(device).use_pool(pool, std::move(source));
  }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, StreamFilter filter) override {
    checked(device).begin_allocate_to_pool(pool, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override { checked(device).end_allocate_to_pool(pool); }
  void releasePool(DeviceIndex device, MempoolId_t pool) override { checked(device).release_pool(pool); }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override { return checked(device).pool_users(pool); }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) override {
    checked(device).set_use_on_oom(pool, use);
  }
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override { checked(device).set_no_split(pool); }

 private:
  // Giving memory back waits for the device, under the lock, where nothing is told.
  static void trace_wait() {
    impl::trace([](auto& to) { to.trace_gpu_device_synchronization(DeviceType::PrivateUse1); });
  }

  // Before the block is free: afterwards another thread may be given the address.
  static void trace_deletion(const void* ptr) noexcept {
    if (ptr != nullptr && !is_shut_down()) {
      impl::trace([ptr](auto& to) {
        to.trace_gpu_memory_deallocation(DeviceType::PrivateUse1, reinterpret_cast<uintptr_t>(ptr));
      });
    }
  }

  void* malloc(DeviceIndex device, size_t size, const NPUStream& stream) {
    constexpr size_t kOneExbibyte = size_t{1} << 60;
    TORCH_CHECK_WITH(OutOfMemoryError, size < kOneExbibyte,
                     "NPU out of memory. Tried to allocate more than 1EB memory.");
    const auto [ptr, rounded, waited] = device_allocator(device).malloc(size, stream);
    if (C10_UNLIKELY(waited)) {
      trace_wait();
    }
    report(ptr, static_cast<int64_t>(rounded), device);
    impl::trace([ptr = ptr](auto& to) {
      to.trace_gpu_memory_allocation(DeviceType::PrivateUse1, reinterpret_cast<uintptr_t>(ptr));
    });
    return ptr;
  }

  // Tells a running profiler; the totals are asked for only then.
  void report(void* ptr, int64_t change, DeviceIndex device) {
    if (C10_LIKELY(!memoryProfilingEnabled())) {
      return;
    }
    const auto [allocated, reserved] = device_allocator(device).totals();
    reportMemoryUsageToProfiler(ptr, change, allocated, reserved, Device(DeviceType::PrivateUse1, device));
  }

  DeviceCachingAllocator& device_allocator(DeviceIndex device) {
    auto& slot = devices_[static_cast<size_t>(device)];
    if (auto* allocator = slot.load(std::memory_order_acquire); C10_LIKELY(allocator != nullptr)) {
      return *allocator;
    }
    apply_environment();
    auto made = std::make_unique<DeviceCachingAllocator>(device);
    DeviceCachingAllocator* found = nullptr;
    return slot.compare_exchange_strong(found, made.get()) ? *made.release() : *found;
  }

  DeviceCachingAllocator& checked(DeviceIndex device) {
    detail::check_device_index(device);
    return device_allocator(device);
  }

  std::array<std::atomic<DeviceCachingAllocator*>, C10_COMPILE_TIME_MAX_NPUS> devices_{};
  std::atomic<bool> history_enabled_{false};
};

// Never destroyed: tensors may be freed during static destruction.
NativeCachingAllocator& instance() {
  static auto* allocator = new NativeCachingAllocator;
  return *allocator;
}

template <size_t device>
void delete_block(void* ptr) {
  instance().delete_of_device(ptr, static_cast<DeviceIndex>(device));
}

void delete_anywhere(void* ptr) {
  if (ptr != nullptr && !instance().delete_of_any_device(ptr)) {
    TORCH_WARN("An npu block is freed that the allocator does not know: ", ptr);
  }
}

REGISTER_ALLOCATOR(DeviceType::PrivateUse1, &instance())

}  // namespace

namespace {

std::atomic<NPUAllocator*> replacement{nullptr};

}  // namespace

NPUAllocator* get() {
  NPUAllocator* other = replacement.load(std::memory_order_acquire);
  return C10_LIKELY(other == nullptr) ? &instance() : other;
}

void set_allocator(NPUAllocator* allocator) {
  TORCH_CHECK(!get()->initialized(),
              "the npu allocator has been used already and cannot be changed any more; change it "
              "before the first npu tensor is made");
  replacement.store(allocator, std::memory_order_release);
  SetAllocator(DeviceType::PrivateUse1, allocator);
}

void setAllocatorSettings(const std::string& settings) {
  const CachingAllocator::ConfigTokenizer tokens(settings);
  for (size_t i = 0; i + 2 < tokens.size(); ++i) {
    TORCH_CHECK_VALUE(!tokens[i + 2].starts_with('-'), tokens[i], " must not be negative, but got: ", tokens[i + 2]);
  }
  CachingAllocator::setAllocatorSettings(settings);
}

std::string format_size(uint64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    return c10::str(bytes, " bytes");
  }
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace c10::npu::NPUCachingAllocator
