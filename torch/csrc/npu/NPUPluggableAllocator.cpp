// See NPUPluggableAllocator.h.

#include <torch/csrc/npu/NPUPluggableAllocator.h>

#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUTaskQueue.h>
#include <c10/npu/acl/Library.h>
#include <c10/npu/impl/Trace.h>

#include <acl_loader.h>

namespace torch::npu::NPUPluggableAllocator {

namespace {

// Never destroyed: tensors may be freed during static destruction.
std::shared_ptr<NPUAllocator>& current() {
  static auto* allocator = new std::shared_ptr<NPUAllocator>;
  return *allocator;
}

void delete_with_current(void* ptr) { current()->raw_delete(ptr); }

[[noreturn]] void refuse(const char* what) {
  C10_THROW_ERROR(NotImplementedError, c10::str("NPUPluggableAllocator does not have ", what,
                                                ": the functions it is made of allocate and free, and no more"));
}

}  // namespace

void* NPUPluggableAllocator::raw_alloc_with_stream(size_t nbytes, c10::npu::NPUStream stream) {
  if (nbytes == 0) {
    return nullptr;
  }
  const c10::npu::NPUGuard guard(stream.device_index());
  c10::npu::activate_device();
  void* ptr = alloc_(nbytes, stream.device_index(), stream.stream());
  if (ptr == nullptr) {
    return nullptr;
  }
  {
    const std::lock_guard lock(mutex_);
    used_ = true;
    allocations_.insert_or_assign(ptr, Allocation{nbytes, stream});
  }
  return ptr;
}

void* NPUPluggableAllocator::raw_alloc(size_t nbytes) {
  return raw_alloc_with_stream(nbytes, c10::npu::getCurrentNPUStream());
}

void NPUPluggableAllocator::raw_delete(void* ptr) {
  if (ptr == nullptr) {
    return;
  }
  std::unique_lock lock(mutex_);
  const auto found = allocations_.find(ptr);
  TORCH_CHECK(found != allocations_.end(), "Invalid device pointer: ", ptr,
              " was not allocated by this pluggable allocator");
  const Allocation allocation = found->second;
  allocations_.erase(found);
  lock.unlock();
  free_(ptr, allocation.size, allocation.stream.device_index(), allocation.stream.stream());
}

c10::DataPtr NPUPluggableAllocator::allocate(size_t size) {
  const auto device = c10::npu::activate_device();
  void* ptr = raw_alloc(size);
  TORCH_CHECK_WITH(OutOfMemoryError, size == 0 || ptr != nullptr, "NPU out of memory. Tried to allocate ",
                   c10::npu::NPUCachingAllocator::format_size(size), " (NPU ", static_cast<int>(device),
                   "): the pluggable allocator's function gave nothing");
  if (ptr != nullptr) {
    c10::npu::impl::trace([ptr](auto& to) {
      to.trace_gpu_memory_allocation(c10::DeviceType::PrivateUse1, reinterpret_cast<uintptr_t>(ptr));
    });
  }
  return {ptr, ptr, raw_deleter(), c10::Device(c10::DeviceType::PrivateUse1, device)};
}

c10::DeleterFnPtr NPUPluggableAllocator::raw_deleter() const { return &delete_with_current; }

void NPUPluggableAllocator::copy_data(void* dest, const void* src, size_t count) const {
  c10::npu::memcpy_async(dest, src, count, ACL_MEMCPY_DEVICE_TO_DEVICE, c10::npu::getCurrentNPUStream());
}

bool NPUPluggableAllocator::initialized() {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::pair<size_t, size_t> NPUPluggableAllocator::getMemoryInfo(c10::DeviceIndex device) {
  const c10::npu::NPUGuard guard(device);
  c10::npu::activate_device();
  size_t free = 0, total = 0;
  NPU_CHECK(c10::npu::acl::aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
  return {free, total};
}

std::optional<c10::DeviceIndex> NPUPluggableAllocator::getDeviceOf(const void* ptr) {
  const std::lock_guard lock(mutex_);
  for (const auto& [start, allocation] : allocations_) {
    if (static_cast<size_t>(static_cast<const char*>(ptr) - static_cast<const char*>(start)) < allocation.size) {
      return allocation.stream.device_index();
    }
  }
  return std::nullopt;
}

void* NPUPluggableAllocator::getBaseAllocation(void* ptr, size_t* size) {
  const std::lock_guard lock(mutex_);
  for (const auto& [start, allocation] : allocations_) {
    if (static_cast<size_t>(static_cast<char*>(ptr) - static_cast<char*>(start)) < allocation.size) {
      if (size != nullptr) {
        *size = allocation.size;
      }
      return start;
    }
  }
  TORCH_CHECK(false, "Invalid device pointer: ", ptr, " was not allocated by this pluggable allocator");
}

c10::CachingDeviceAllocator::DeviceStats NPUPluggableAllocator::getDeviceStats(c10::DeviceIndex) {
  refuse("memory statistics");
}
void NPUPluggableAllocator::resetAccumulatedStats(c10::DeviceIndex) { refuse("memory statistics"); }
void NPUPluggableAllocator::resetPeakStats(c10::DeviceIndex) { refuse("memory statistics"); }
double NPUPluggableAllocator::getMemoryFraction(c10::DeviceIndex) { refuse("a memory fraction"); }
void NPUPluggableAllocator::setMemoryFraction(double, c10::DeviceIndex) { refuse("a memory fraction"); }
size_t NPUPluggableAllocator::cacheInfo(c10::DeviceIndex) { refuse("a cache"); }
c10::npu::NPUCachingAllocator::SnapshotInfo NPUPluggableAllocator::snapshot(c10::MempoolId_t, bool) {
  refuse("snapshots");
}
void NPUPluggableAllocator::recordHistory(bool, c10::CachingDeviceAllocator::CreateContextFn, size_t,
                                          c10::CachingDeviceAllocator::RecordContext, bool) {
  refuse("a history");
}
void NPUPluggableAllocator::attachOutOfMemoryObserver(c10::npu::NPUCachingAllocator::OutOfMemoryObserver) {
  refuse("observers");
}
void NPUPluggableAllocator::createOrIncrefPool(c10::DeviceIndex, c10::MempoolId_t, std::shared_ptr<NPUAllocator>) {
  refuse("memory pools");
}
void NPUPluggableAllocator::beginAllocateToPool(c10::DeviceIndex, c10::MempoolId_t,
                                                c10::npu::NPUCachingAllocator::StreamFilter) {
  refuse("memory pools");
}
void NPUPluggableAllocator::endAllocateToPool(c10::DeviceIndex, c10::MempoolId_t) { refuse("memory pools"); }
void NPUPluggableAllocator::releasePool(c10::DeviceIndex, c10::MempoolId_t) { refuse("memory pools"); }
int NPUPluggableAllocator::getPoolUseCount(c10::DeviceIndex, c10::MempoolId_t) { refuse("memory pools"); }
void NPUPluggableAllocator::setUseOnOOM(c10::DeviceIndex, c10::MempoolId_t, bool) { refuse("memory pools"); }
void NPUPluggableAllocator::setNoSplit(c10::DeviceIndex, c10::MempoolId_t) { refuse("memory pools"); }

std::shared_ptr<NPUAllocator> createCustomAllocator(AllocFunction alloc, FreeFunction free) {
  return std::make_shared<NPUPluggableAllocator>(std::move(alloc), std::move(free));
}

void changeCurrentAllocator(const std::shared_ptr<NPUAllocator>& allocator) {
  c10::npu::NPUCachingAllocator::set_allocator(allocator.get());
  current() = allocator;
}

std::shared_ptr<NPUAllocator> getCurrentAllocator() {
  // The native one is never destroyed, so nobody owns it.
  return current() != nullptr
             ? current()
             : std::shared_ptr<NPUAllocator>(c10::npu::NPUCachingAllocator::get(), [](NPUAllocator*) {});
}

}  // namespace torch::npu::NPUPluggableAllocator
