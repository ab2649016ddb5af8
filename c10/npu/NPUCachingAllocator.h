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

// Called before an out-of-memory error is thrown: device, bytes asked for, device total, device free.
using OutOfMemoryObserver = std::function<void(int64_t, size_t, size_t, size_t)>;

class C10_NPU_API NPUAllocator : public DeviceAllocator {
 public:
  virtual void* raw_alloc(size_t nbytes) = 0;
  virtual void* raw_alloc_with_stream(size_t nbytes, NPUStream stream) = 0;
  virtual void raw_delete(void* ptr) = 0;
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
  virtual SnapshotInfo snapshot(bool include_traces = true) = 0;
  virtual bool isHistoryEnabled() = 0;
  virtual void recordHistory(bool enabled, CreateContextFn context_recorder, size_t max_entries, RecordContext when,
                             bool clear) = 0;
  virtual void attachOutOfMemoryObserver(OutOfMemoryObserver observer) = 0;
  virtual std::string name() = 0;
};

C10_NPU_API NPUAllocator* get();

inline void* raw_alloc(size_t nbytes) { return get()->raw_alloc(nbytes); }
inline void* raw_alloc_with_stream(size_t nbytes, NPUStream stream) {
  return get()->raw_alloc_with_stream(nbytes, stream);
}
inline void raw_delete(void* ptr) { get()->raw_delete(ptr); }
inline double getMemoryFraction(DeviceIndex device) { return get()->getMemoryFraction(device); }
inline void setMemoryFraction(double fraction, DeviceIndex device) { get()->setMemoryFraction(fraction, device); }
inline void emptyCache() { get()->emptyCache(); }
inline size_t cacheInfo(DeviceIndex device) { return get()->cacheInfo(device); }
inline void* getBaseAllocation(void* ptr, size_t* size = nullptr) { return get()->getBaseAllocation(ptr, size); }
inline std::optional<DeviceIndex> getDeviceOf(const void* ptr) { return get()->getDeviceOf(ptr); }
inline void recordStream(const DataPtr& ptr, NPUStream stream) { get()->recordStream(ptr, stream.unwrap()); }
inline DeviceStats getDeviceStats(DeviceIndex device) { return get()->getDeviceStats(device); }
inline void resetAccumulatedStats(DeviceIndex device) { get()->resetAccumulatedStats(device); }
inline void resetPeakStats(DeviceIndex device) { get()->resetPeakStats(device); }
inline SnapshotInfo snapshot(bool include_traces = true) { return get()->snapshot(include_traces); }
// Free and total bytes of the device.
inline std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) { return get()->getMemoryInfo(device); }
inline std::string name() { return get()->name(); }

// Applies a string in the form of PYTORCH_NPU_ALLOC_CONF. Throws ValueError for a key that is not known or, like
// expandable_segments:True, not supported here.
C10_NPU_API void setAllocatorSettings(const std::string& settings);

// "80.00 GiB"
C10_NPU_API std::string format_size(uint64_t bytes);

}  // namespace c10::npu::NPUCachingAllocator
