// Upstream's caching host allocator over ACL's pinned memory.

#include <ATen/npu/CachingHostAllocator.h>

#include <acl_loader.h>
#include <c10/npu/NPUEvent.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUGraphsC10Utils.h>
#include <c10/npu/impl/PinnedRanges.h>

#include <chrono>
#include <mutex>

namespace at::npu {

namespace {

using c10::npu::NPUEvent;
using c10::npu::NPUStream;

int64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
}

struct NPUCachingHostAllocatorImpl final : public CachingHostAllocatorImpl<NPUStream, NPUEvent> {
 private:
  void allocate_host_memory(size_t size, void** ptr) override {
    c10::npu::activate_device();
    const auto start = std::chrono::steady_clock::now();
    const aclError code = c10::npu::acl::aclrtMallocHost(ptr, size);
    if (code != ACL_SUCCESS) {
      // Cached blocks of other sizes may hold what is needed.
      empty_cache();
      NPU_CHECK(c10::npu::acl::aclrtMallocHost(ptr, size), "pinning ", size, " bytes of host memory");
    }
    {
      const std::lock_guard lock(stats_.timing_mutex_);
      stats_.host_alloc_time.increase(microseconds_since(start));
    }
    c10::npu::impl::add_pinned_range(*ptr, size);
  }

  void free_block(HostBlock<NPUStream>* block) override {
    c10::npu::impl::remove_pinned_range(block->ptr_);
    const auto start = std::chrono::steady_clock::now();
    c10::npu::activate_device();
    NPU_CHECK_WARN(c10::npu::acl::aclrtFreeHost(block->ptr_));
    const std::lock_guard lock(stats_.timing_mutex_);
    stats_.host_free_time.increase(microseconds_since(start));
  }

  void record_stream(std::optional<std::vector<NPUEvent>>& events, NPUStream stream) override {
    // A captured copy reads the block at each replay: there is no event after which it is free.
    if (stream_is_capturing(stream)) return;
    NPUEvent event = NPUEvent::untraced();
    event.record(stream, /*raise_deferred=*/false);  // this runs when a block is freed
    events->push_back(std::move(event));
  }

  bool query_event(NPUEvent& event) override { return !c10::npu::is_any_capture_under_way() && event.query(); }
  NPUStream get_current_stream() const override { return c10::npu::getCurrentNPUStream(); }
  bool stream_is_capturing(NPUStream stream) const override {
    return c10::npu::capture_status(stream) != c10::npu::CaptureStatus::None;
  }
};

void delete_host_block(void* ctx);

struct NPUCachingHostAllocator final
    : public CachingHostAllocatorInterface<NPUCachingHostAllocatorImpl, delete_host_block> {
  void copy_data(void* dest, const void* src, size_t count) const override { std::memcpy(dest, src, count); }
};

NPUCachingHostAllocator& instance() {
  static auto* allocator = new NPUCachingHostAllocator;
  return *allocator;
}

// From destructors: nothing may be thrown, and nothing is recorded once the device is closed.
void delete_host_block(void* ctx) {
  if (c10::npu::is_shut_down() || c10::npu::is_in_bad_fork()) {
    return;
  }
  try {
    instance().free(ctx);
  } catch (const std::exception& error) {
    TORCH_WARN("A pinned block could not be given back and is lost: ", error.what());
  }
}

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &instance())

}  // namespace

at::HostAllocator* getCachingHostAllocator() { return &instance(); }

bool isPinnedPtr(const void* ptr) { return c10::npu::impl::is_pinned(ptr); }

}  // namespace at::npu
