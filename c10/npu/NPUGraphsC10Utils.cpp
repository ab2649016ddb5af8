// See NPUGraphsC10Utils.h.

#include <c10/npu/NPUGraphsC10Utils.h>

#include <acl_loader.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUGuard.h>

namespace c10::npu {

bool can_capture() {
  static const bool can = acl::has_function("aclmdlRICaptureBegin") && acl::has_function("aclmdlRICaptureGetInfo") &&
                          acl::has_function("aclmdlRICaptureEnd") && acl::has_function("aclmdlRIExecuteAsync") &&
                          acl::has_function("aclmdlRIDestroy");
  return can;
}

CaptureStatus capture_status(const NPUStream& stream, aclmdlRI* graph) {
  if (graph != nullptr) {
    *graph = nullptr;
  }
  // A default stream is never in capture, and without a capture there is nothing to ask.
  if (!is_any_capture_under_way() || stream.id() == 0) {
    return CaptureStatus::None;
  }
  aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  aclmdlRI found = nullptr;
  NPU_CHECK(acl::aclmdlRICaptureGetInfo(stream.stream(), &status, &found));
  if (graph != nullptr && status != ACL_MODEL_RI_CAPTURE_STATUS_NONE) {
    *graph = found;
  }
  return static_cast<CaptureStatus>(status);
}

void detail::throw_capturing(const NPUStream& stream, const char* what) {
  TORCH_CHECK(
      false, what, " on npu:", static_cast<int>(stream.device_index()),
      " while the current stream is being captured into a graph: captured work is recorded and does not run, so "
      "there is no value to wait for, and host memory is read at the call only. Do it before or after the "
      "capture, or write the computation so that it stays on the device");
}

NPUStreamCaptureModeGuard::NPUStreamCaptureModeGuard(aclmdlRICaptureMode mode) {
  if (is_any_capture_under_way() && acl::has_function("aclmdlRICaptureThreadExchangeMode")) {
    NPU_CHECK(acl::aclmdlRICaptureThreadExchangeMode(&mode));
    before_ = mode;
  }
}

NPUStreamCaptureModeGuard::~NPUStreamCaptureModeGuard() {
  if (before_.has_value()) {
    NPU_CHECK_WARN(acl::aclmdlRICaptureThreadExchangeMode(&*before_));
  }
}

}  // namespace c10::npu
