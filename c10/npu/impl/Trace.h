#pragma once
// What torch.npu._sanitizer hears: events, streams, waits and memory, told to Python through upstream's GPUTrace once
// somebody has asked for it (torch._C._activate_gpu_trace). It calls into Python, so nothing is told under a lock.

#include <c10/core/impl/GPUTrace.h>
#include <c10/npu/NPUStream.h>

namespace c10::npu::impl {

// Calls `tell` with the interpreter that listens, if one does.
template <class F>
inline void trace(F&& tell) {
  if (const auto* interpreter = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(interpreter != nullptr)) {
    tell(**interpreter);
  }
}

// The number of a stream in the trace: its handle. All default streams have a null one: the device's index then.
inline uintptr_t trace_key(const NPUStream& stream) {
  const auto handle = reinterpret_cast<uintptr_t>(stream.stream());
  return handle != 0 ? handle : static_cast<uintptr_t>(stream.device_index());
}

// device_synchronize(), of which the sanitizer is not told: for who holds a lock.
void synchronize_untraced();

}  // namespace c10::npu::impl
