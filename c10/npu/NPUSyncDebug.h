#pragma once
// torch.npu.set_sync_debug_mode: says when an operation makes the host wait for the device, which is what a training
// loop wants to avoid. Explicit waits (synchronize of a device, stream or event) are never reported.

#include <c10/npu/NPUMacros.h>
#include <c10/util/Exception.h>

#include <atomic>

namespace c10::npu {

enum class SyncDebugMode { Off = 0, Warn = 1, Error = 2 };

namespace detail {
inline std::atomic<SyncDebugMode> sync_debug_mode{SyncDebugMode::Off};
}  // namespace detail

// Called by what waits on behalf of an operation. Throws in mode Error.
inline void report_sync() {
  const auto mode = detail::sync_debug_mode.load(std::memory_order_relaxed);
  if (C10_LIKELY(mode == SyncDebugMode::Off)) {
    return;
  }
  TORCH_CHECK(mode != SyncDebugMode::Error, "called a synchronizing NPU operation");
  TORCH_WARN("called a synchronizing NPU operation");
}

}  // namespace c10::npu
