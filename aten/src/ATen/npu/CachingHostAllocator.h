#pragma once
// Pinned host memory: upstream's caching host allocator over aclrtMallocHost. A block is not handed out again while a
// copy from or to it is in flight, provided that whoever starts the copy calls recordEvent.

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/npu/NPUMacros.h>
#include <c10/npu/NPUStream.h>

namespace at::npu {

TORCH_NPU_API at::HostAllocator* getCachingHostAllocator();

// Ties the block that holds ptr (whose storage context is ctx) to the work queued on the stream so far when it is
// freed. Returns false when the memory is not ours.
inline bool CachingHostAllocator_recordEvent(void* ptr, void* ctx, c10::npu::NPUStream stream) {
  return getCachingHostAllocator()->record_event(ptr, ctx, stream.unwrap());
}
inline void CachingHostAllocator_emptyCache() { getCachingHostAllocator()->empty_cache(); }

// Whether ptr points into a block of this allocator. Opens no device.
TORCH_NPU_API bool isPinnedPtr(const void* ptr);

}  // namespace at::npu
