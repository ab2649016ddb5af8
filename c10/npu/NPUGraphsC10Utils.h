#pragma once
// Whether streams are being captured into graphs. Mirrors c10/cuda/CUDAGraphsC10Utils.h; the graphs themselves are in
// ATen/npu/NPUGraph.h.

#include <c10/npu/NPUStream.h>

#include <atomic>
#include <optional>

namespace c10::npu {

// Note [Captures under way]
// While a stream is in capture the device answers no question about it, so what the host does on its own account must
// not ask any: the caching allocators keep blocks that other streams have used until no capture is under way, and give
// nothing back to the device meanwhile; a random generator takes its place in the sequence from the graph; what has to
// wait for a value says so at the call, before the device is asked. All of it costs one look at a counter.

enum class CaptureStatus : int { None = 0, Active = 1, Invalidated = 2 };

namespace detail {
inline std::atomic<int> captures_under_way{0};
[[noreturn]] C10_NPU_API void throw_capturing(const NPUStream& stream, const char* what);
}  // namespace detail

// In this process, on any device.
inline bool is_any_capture_under_way() { return detail::captures_under_way.load(std::memory_order_relaxed) != 0; }

// Whether this CANN can capture; the simulator can.
C10_NPU_API bool can_capture();

// Of one stream; does not open a device. `graph` is set to ACL's handle while the stream is in capture.
C10_NPU_API CaptureStatus capture_status(const NPUStream& stream, aclmdlRI* graph = nullptr);
inline CaptureStatus currentStreamCaptureStatusMayInitCtx() {
  return C10_LIKELY(!is_any_capture_under_way()) ? CaptureStatus::None : capture_status(getCurrentNPUStream());
}

// Throws if the stream is in capture: `what` cannot be recorded, for example "item()".
inline void assert_not_capturing(const NPUStream& stream, const char* what) {
  if (C10_UNLIKELY(is_any_capture_under_way()) && capture_status(stream) != CaptureStatus::None) {
    detail::throw_capturing(stream, what);
  }
}

// While it lives, the thread's unsafe calls are judged by `mode`, see aclmdlRICaptureThreadExchangeMode.
class C10_NPU_API NPUStreamCaptureModeGuard {
 public:
  explicit NPUStreamCaptureModeGuard(aclmdlRICaptureMode mode);
  ~NPUStreamCaptureModeGuard();
  NPUStreamCaptureModeGuard(const NPUStreamCaptureModeGuard&) = delete;
  NPUStreamCaptureModeGuard& operator=(const NPUStreamCaptureModeGuard&) = delete;

 private:
  std::optional<aclmdlRICaptureMode> before_;
};

}  // namespace c10::npu
