#pragma once
// Which operator of the host a task belongs to, while a profiler listens. The device keeps it for each thread; the
// queue's thread takes over that of the thread that called.

#include <c10/npu/NPUMacros.h>

#include <atomic>
#include <cstdint>

namespace c10::npu::impl {

C10_NPU_API extern std::atomic<int> correlates;  // profilers that listen

}  // namespace c10::npu::impl
