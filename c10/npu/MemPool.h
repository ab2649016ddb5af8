#pragma once
// A pool of memory of its own in the caching allocator (torch.npu.MemPool). Mirrors ATen/cuda/MemPool.h.

#include <c10/npu/NPUCachingAllocator.h>

#include <memory>

namespace c10::npu {

// Makes the pool on the current device, and releases it at its end: memory of it that is free goes back at once, the
// rest when its last tensor has gone and the cache is emptied.
class C10_NPU_API MemPool {
 public:
  // `allocator` gives the pool its segments; null: the device. With `use_on_oom` what is free in the pool serves
  // requests from outside that found no memory; with `no_split` a segment is one block.
  explicit MemPool(std::shared_ptr<NPUCachingAllocator::NPUAllocator> allocator = nullptr, bool is_user_created = true,
                   bool use_on_oom = false, bool no_split = false);
  ~MemPool();
  MemPool(const MemPool&) = delete;
  MemPool& operator=(const MemPool&) = delete;

  MempoolId_t id() const { return id_; }
  DeviceIndex device() const { return device_; }
  // 1, and one more for each use_mem_pool that is under way.
  int use_count() const;
  const std::shared_ptr<NPUCachingAllocator::NPUAllocator>& allocator() const { return allocator_; }

  // An id that no other pool has.
  static MempoolId_t graph_pool_handle(bool is_user_created = true);

 private:
  std::shared_ptr<NPUCachingAllocator::NPUAllocator> allocator_;
  MempoolId_t id_;
  DeviceIndex device_;
};

}  // namespace c10::npu
