#pragma once
// The caching allocator of device memory, with CUDA's behaviour and statistics. Mirrors
// c10/cuda/CUDACachingAllocator.h; Note [Blocks and segments] in impl/DeviceCachingAllocator.h
// explains how it works.

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/npu/NPUMacros.h>
#include <c10/npu/NPUStream.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace c10::npu::NPUCachingAllocator {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;

struct SnapshotInfo {
  std::vector<SegmentInfo> segments;
  std::vector<std::vector<TraceEntry>> device_traces;  // one list per device, oldest entry first
};

// Of which streams a pool takes the requests.
using StreamFilter = std::function<bool(aclrtStream)>;
constexpr MempoolId_t kPublicPool{0, 0};

// Called before an out-of-memory error is thrown: device, bytes asked for, device total, device free.
using OutOfMemoryObserver = std::function<void(int64_t, size_t, size_t, size_t)>;

// What torch.npu allocates with: the native allocator, or one that change_current_allocator put in its place. What a
// replacement does not offer throws.
class C10_NPU_API NPUAllocator : public DeviceAllocator {
 public:
  virtual void* raw_alloc(size_t nbytes) = 0;
  virtual void* raw_alloc_with_stream(size_t nbytes, NPUStream stream) = 0;
  virtual void raw_delete(void* ptr) = 0;
  // Takes back a recordStream: the memory may be used again without waiting for that stream.
  virtual void eraseStream(void* ptr, NPUStream stream) = 0;
  // Fraction of the device's total memory that this process may reserve, in (0, 1].
  virtual double getMemoryFraction(DeviceIndex device) = 0;
  virtual void setMemoryFraction(double fraction, DeviceIndex device) = 0;
  // Largest free block that could be handed out without asking the device, in bytes.
  virtual size_t cacheInfo(DeviceIndex device) = 0;
  // The segment that holds ptr: its first address, and its bytes in *size when size is given. Throws for memory that
  // is not this allocator's.
  virtual void* getBaseAllocation(void* ptr, size_t* size) = 0;
  // The device whose memory ptr points into; nullopt for memory that is not this allocator's.
  virtual std::optional<DeviceIndex> getDeviceOf(const void* ptr) = 0;
  // Whether the address lies in memory that is known to be free: handed out to nobody, waited for by no stream. Does
  // not wait for another thread that allocates: false then.
  virtual bool isFree(DeviceIndex /*device*/, const void* /*ptr*/) { return false; }
  // Of one pool, or with kPublicPool of everything.
  virtual SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) = 0;
  virtual bool isHistoryEnabled() = 0;
  virtual void recordHistory(bool enabled, CreateContextFn context_recorder, size_t max_entries, RecordContext when,
                             bool clear) = 0;
  virtual void attachOutOfMemoryObserver(OutOfMemoryObserver observer) = 0;
  virtual std::string name() = 0;

  // Note [Private pools] in impl/Blocks.h. A pool that is not there yet is made, with one user more; its segments come
  // from `source`, or if that is null from the device.
  virtual void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, std::shared_ptr<NPUAllocator> source) = 0;
  virtual void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, StreamFilter filter) = 0;
  virtual void endAllocateToPool(DeviceIndex device, MempoolId_t pool) = 0;
  virtual void releasePool(DeviceIndex device, MempoolId_t pool) = 0;
  virtual int getPoolUseCount(DeviceIndex device, MempoolId_t pool) = 0;
  virtual void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use_on_oom) = 0;
  virtual void setNoSplit(DeviceIndex device, MempoolId_t pool) = 0;
};

C10_NPU_API NPUAllocator* get();
// Puts another allocator, which must live as long as the process, in the place of the native one. Throws once the
// present one has handed out memory.
C10_NPU_API void set_allocator(NPUAllocator* allocator);

inline void* raw_alloc(size_t nbytes) { return get()->raw_alloc(nbytes); }
inline void* raw_alloc_with_stream(size_t nbytes, NPUStream stream) {
  return get()->raw_alloc_with_stream(nbytes, stream);
}
inline void raw_delete(void* ptr) { get()->raw_delete(ptr); }
inline double getMemoryFraction(DeviceIndex device) { return get()->getMemoryFraction(device); }
inline void setMemoryFraction(double fraction, DeviceIndex device) { get()->setMemoryFraction(fraction, device); }
inline void emptyCache(MempoolId_t pool = kPublicPool) { get()->emptyCache(pool); }
inline size_t cacheInfo(DeviceIndex device) { return get()->cacheInfo(device); }
inline void* getBaseAllocation(void* ptr, size_t* size = nullptr) { return get()->getBaseAllocation(ptr, size); }
inline std::optional<DeviceIndex> getDeviceOf(const void* ptr) { return get()->getDeviceOf(ptr); }
inline void recordStream(const DataPtr& ptr, NPUStream stream) { get()->recordStream(ptr, stream.unwrap()); }
inline void eraseStream(void* ptr, NPUStream stream) { get()->eraseStream(ptr, stream); }
inline DeviceStats getDeviceStats(DeviceIndex device) { return get()->getDeviceStats(device); }
inline void resetAccumulatedStats(DeviceIndex device) { get()->resetAccumulatedStats(device); }
inline void resetPeakStats(DeviceIndex device) { get()->resetPeakStats(device); }
inline SnapshotInfo snapshot(MempoolId_t pool = kPublicPool, bool include_traces = true) {
  return get()->snapshot(pool, include_traces);
}
// Free and total bytes of the device.
inline std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) { return get()->getMemoryInfo(device); }
inline std::string name() { return get()->name(); }

// Applies a string in the form of PYTORCH_NPU_ALLOC_CONF. Throws ValueError for a key that is not known.
C10_NPU_API void setAllocatorSettings(const std::string& settings);

// "80.00 GiB"
C10_NPU_API std::string format_size(uint64_t bytes);

}  // namespace c10::npu::NPUCachingAllocator
