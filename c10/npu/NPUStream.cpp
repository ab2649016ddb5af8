// Pools of streams, and each thread's current ones.

#include <c10/npu/NPUStream.h>

#include <acl_loader.h>
#include <c10/npu/NPUEvent.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUOptions.h>
#include <c10/npu/NPUTaskQueue.h>
#include <c10/npu/impl/Exit.h>
#include <c10/npu/impl/Interrupt.h>
#include <c10/npu/impl/Trace.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

namespace c10::npu {

namespace {

constexpr uint32_t kStreamsPerPool = 32;

// Streams of one priority on one device, each made when it is first handed out.
struct StreamPool {
  std::atomic<uint32_t> next{0};
  std::array<std::atomic<aclrtStream>, kStreamsPerPool> handles{};
  std::mutex mutex;
};

// Never destroyed: streams live as long as the process, and ACL may be gone by then.
StreamPool& pool(DeviceIndex device, bool high_priority) {
  static auto* pools = new std::array<StreamPool, 2 * C10_COMPILE_TIME_MAX_NPUS>;
  return (*pools)[2 * static_cast<size_t>(device) + (high_priority ? 1 : 0)];
}

// See Note [Stream ids].
bool is_pool_id(StreamId id) { return (id & 1) != 0; }
bool is_high_priority_id(StreamId id) { return (id & 2) != 0; }
size_t pool_index(StreamId id) { return static_cast<size_t>(id >> 2); }
StreamId pool_id(uint32_t index, bool high_priority) {
  return (static_cast<StreamId>(index) << 2) | (high_priority ? 2 : 0) | 1;
}

// This thread's current streams, made when it first leaves the default ones.
StreamId* own_streams() {
  struct Own {
    Own() : ids(std::make_unique<StreamId[]>(C10_COMPILE_TIME_MAX_NPUS)) { detail::thread_device.streams = ids.get(); }
    ~Own() { detail::thread_device.streams = nullptr; }
    std::unique_ptr<StreamId[]> ids;
  };
  static thread_local Own own;
  return own.ids.get();
}

NPUStream make_stream(StreamId id, DeviceIndex device) {
  return NPUStream(NPUStream::UNCHECKED, Stream(Stream::UNSAFE, Device(DeviceType::PrivateUse1, device), id));
}

DeviceIndex resolve(DeviceIndex device) {
  if (device == -1) {
    return current_device();
  }
  if (C10_UNLIKELY(device != current_device())) {
    detail::check_device_index(device);
  }
  return device;
}

aclrtStream create_stream(DeviceIndex device, bool high_priority) {
  const NPUGuard guard(device);
  activate_device();
  aclrtStream stream = nullptr;
  static const bool with_config = acl::has_function("aclrtCreateStreamWithConfig");
  if (!with_config) {
    NPU_CHECK(acl::aclrtCreateStream(&stream));
    return stream;
  }
  constexpr uint32_t kFlags = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC;
  // ACL's priorities run from 0, the highest, to 7; earlier releases take 0 only.
  if (!high_priority && acl::aclrtCreateStreamWithConfig(&stream, 7, kFlags) == ACL_SUCCESS) {
    return stream;
  }
  NPU_CHECK(acl::aclrtCreateStreamWithConfig(&stream, 0, kFlags));
  return stream;
}

bool is_done(const NPUStream& stream) {
  const NPUGuard guard(stream.device_index());
  activate_device();
  drain_task_queue(stream.device_index());
  static const bool with_status = acl::has_function("aclrtStreamQuery");
  if (with_status) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
    NPU_CHECK(acl::aclrtStreamQuery(stream.stream(), &status));
    return status == ACL_STREAM_STATUS_COMPLETE;
  }
  NPUEvent last = NPUEvent::untraced();  // what CANN had before
  last.record(stream);
  return last.query();
}

}  // namespace

aclrtStream NPUStream::stream_slow() const {
  const StreamId id = stream_.id();
  if (!is_pool_id(id)) {
    return reinterpret_cast<aclrtStream>(id);  // an external stream is its own id
  }
  TORCH_CHECK(pool_index(id) < kStreamsPerPool, "Unrecognized npu stream ", stream_,
              ": make streams with torch.npu.Stream or c10::npu::getStreamFromPool");
  auto& handle = pool(device_index(), is_high_priority_id(id)).handles[pool_index(id)];
  aclrtStream stream = handle.load(std::memory_order_acquire);
  TORCH_CHECK(stream != nullptr, "Unrecognized npu stream ", stream_, ": it was never handed out by the pool");
  return stream;
}

bool NPUStream::query() const {
  const bool done = is_done(*this);
  if (done) {
    // Who has seen that it is done is ordered after it, as by a wait.
    impl::trace(
        [this](auto& to) { to.trace_gpu_stream_synchronization(DeviceType::PrivateUse1, impl::trace_key(*this)); });
  }
  return done;
}

void NPUStream::synchronize() const {
  const NPUGuard guard(device_index());
  activate_device();
  drain_task_queue(device_index());
  static const bool bounded = acl::has_function("aclrtSynchronizeStreamWithTimeout");
  if (bounded) {
    NPU_CHECK(impl::wait_in_slices(options().sync_timeout_ms, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, [this](int32_t ms) {
      return acl::aclrtSynchronizeStreamWithTimeout(stream(), ms);
    }));
  } else {
    NPU_CHECK(acl::aclrtSynchronizeStream(stream()));
  }
  detail::drop_finished_tasks(device_index());
  impl::stay_if_exiting();
  impl::trace(
      [this](auto& to) { to.trace_gpu_stream_synchronization(DeviceType::PrivateUse1, impl::trace_key(*this)); });
}

int NPUStream::priority() const { return is_pool_id(id()) && is_high_priority_id(id()) ? -1 : 0; }

NPUStream getStreamFromPool(bool isHighPriority, DeviceIndex device) {
  device = resolve(device);
  auto& streams = pool(device, isHighPriority);
  const uint32_t index = streams.next.fetch_add(1) % kStreamsPerPool;
  auto& handle = streams.handles[index];
  bool made = false;
  if (handle.load(std::memory_order_acquire) == nullptr) {
    const std::lock_guard lock(streams.mutex);
    if (handle.load(std::memory_order_relaxed) == nullptr) {
      handle.store(create_stream(device, isHighPriority), std::memory_order_release);
      made = true;
    }
  }
  const NPUStream stream = make_stream(pool_id(index, isHighPriority), device);
  if (made) {
    impl::trace([&](auto& to) { to.trace_gpu_stream_creation(DeviceType::PrivateUse1, impl::trace_key(stream)); });
  }
  return stream;
}

NPUStream getStreamFromPool(int priority, DeviceIndex device) {
  TORCH_CHECK(priority <= 0, "Expected stream priority to be less than or equal to 0, got ", priority);
  return getStreamFromPool(/*isHighPriority=*/priority < 0, device);
}

NPUStream getStreamFromExternal(aclrtStream stream, DeviceIndex device) {
  const auto id = reinterpret_cast<StreamId>(stream);
  TORCH_CHECK(!is_pool_id(id), "An external npu stream must be aligned to 2 bytes at least");
  return make_stream(id, resolve(device));
}

NPUStream getDefaultNPUStream(DeviceIndex device) { return make_stream(0, resolve(device)); }

void setCurrentNPUStream(NPUStream stream) {
  const DeviceIndex device = resolve(stream.device_index());
  if (stream.id() != 0 || detail::thread_device.streams != nullptr) {
    own_streams()[device] = stream.id();
  }
}

std::ostream& operator<<(std::ostream& out, const NPUStream& stream) { return out << stream.unwrap(); }

}  // namespace c10::npu
