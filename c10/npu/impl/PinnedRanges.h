#pragma once
// Which host addresses are pinned memory of this process. Kept here, below the pinned allocator, because copies need
// to know.

#include <c10/npu/NPUMacros.h>

#include <cstddef>

namespace c10::npu::impl {

C10_NPU_API void add_pinned_range(const void* begin, size_t bytes);
C10_NPU_API void remove_pinned_range(const void* begin);
C10_NPU_API bool is_pinned(const void* address);

}  // namespace c10::npu::impl
