#pragma once
// An allocator of device memory that is made of two functions of the user's. Mirrors
// torch/csrc/cuda/CUDAPluggableAllocator.h: it can serve torch.npu.MemPool with segments, or take the caching
// allocator's place altogether.

#include <c10/npu/NPUCachingAllocator.h>

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace torch::npu::NPUPluggableAllocator {

using c10::npu::NPUCachingAllocator::NPUAllocator;

using AllocFunction = std::function<void*(size_t size, int device, aclrtStream stream)>;
using FreeFunction = std::function<void(void* ptr, size_t size, int device, aclrtStream stream)>;

class NPUPluggableAllocator final : public NPUAllocator {
 public:
  NPUPluggableAllocator(AllocFunction alloc, FreeFunction free) : alloc_(std::move(alloc)), free_(std::move(free)) {}

  c10::DataPtr allocate(size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, size_t count) const override;
  void* raw_alloc(size_t nbytes) override;
  void* raw_alloc_with_stream(size_t nbytes, c10::npu::NPUStream stream) override;
  void raw_delete(void* ptr) override;
  bool initialized() override;
  // Nothing is cached, and the user's functions know nothing of streams: these do nothing.
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  void eraseStream(void*, c10::npu::NPUStream) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;
  std::optional<c10::DeviceIndex> getDeviceOf(const void* ptr) override;
  void* getBaseAllocation(void* ptr, size_t* size) override;
  std::string name() override { return "pluggable"; }
  bool isHistoryEnabled() override { return false; }

  // The rest is the caching allocator's business: these throw.
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override;
  void resetAccumulatedStats(c10::DeviceIndex) override;
  void resetPeakStats(c10::DeviceIndex) override;
  double getMemoryFraction(c10::DeviceIndex) override;
  void setMemoryFraction(double, c10::DeviceIndex) override;
  size_t cacheInfo(c10::DeviceIndex) override;
  c10::npu::NPUCachingAllocator::SnapshotInfo snapshot(c10::MempoolId_t, bool) override;
  void recordHistory(bool, c10::CachingDeviceAllocator::CreateContextFn, size_t,
                     c10::CachingDeviceAllocator::RecordContext, bool) override;
  void attachOutOfMemoryObserver(c10::npu::NPUCachingAllocator::OutOfMemoryObserver) override;
  void createOrIncrefPool(c10::DeviceIndex, c10::MempoolId_t, std::shared_ptr<NPUAllocator>) override;
  void beginAllocateToPool(c10::DeviceIndex, c10::MempoolId_t, c10::npu::NPUCachingAllocator::StreamFilter) override;
  void endAllocateToPool(c10::DeviceIndex, c10::MempoolId_t) override;
  void releasePool(c10::DeviceIndex, c10::MempoolId_t) override;
  int getPoolUseCount(c10::DeviceIndex, c10::MempoolId_t) override;
  void setUseOnOOM(c10::DeviceIndex, c10::MempoolId_t, bool) override;
  void setNoSplit(c10::DeviceIndex, c10::MempoolId_t) override;

 private:
  struct Allocation {
    size_t size;
    c10::npu::NPUStream stream;
  };

  const AllocFunction alloc_;
  const FreeFunction free_;
  std::mutex mutex_;
  std::unordered_map<void*, Allocation> allocations_;
  bool used_ = false;
};

std::shared_ptr<NPUAllocator> createCustomAllocator(AllocFunction alloc, FreeFunction free);
// See c10::npu::NPUCachingAllocator::set_allocator.
void changeCurrentAllocator(const std::shared_ptr<NPUAllocator>& allocator);
std::shared_ptr<NPUAllocator> getCurrentAllocator();

}  // namespace torch::npu::NPUPluggableAllocator
