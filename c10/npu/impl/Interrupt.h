#pragma once
// Waits that end when the user asks: Ctrl-C is looked for while the main thread waits for a device.

#include <acl/acl_base.h>
#include <acl/acl_rt.h>
#include <c10/npu/NPUMacros.h>

#include <algorithm>
#include <cstdint>

namespace c10::npu::impl {

// Throws if the process was asked to stop what it is doing. Returns false on a thread that nobody interrupts.
using InterruptCheck = bool (*)();

// Whoever runs a language set its check here; without one nothing is looked for.
C10_NPU_API void set_interrupt_check(InterruptCheck check);
// Looks: as the check does, and notes that the process was interrupted.
C10_NPU_API bool check_interrupt();
C10_NPU_API bool was_interrupted();
// Forgets the text that a slice's time-out left with ACL.
C10_NPU_API void forget_timeout();

// A card logs every time-out, so that it is asked less often.
C10_NPU_API int64_t slice_ms();

// Calls `wait(milliseconds)`, an aclrtSynchronize...WithTimeout, until it ends other than by `timed_out` or the
// time-out (none if not positive) is over. What is waited for is in order still when check_interrupt() throws.
template <class Wait>
aclError wait_in_slices(int32_t timeout_ms, aclError timed_out, const Wait& wait) {
  static const int64_t most = slice_ms();
  for (int64_t left = timeout_ms > 0 ? timeout_ms : INT64_MAX;;) {
    const int64_t slice = std::min(left, most);
    const aclError code = wait(static_cast<int32_t>(slice));
    left -= slice;
    if (code != timed_out || left == 0) {
      return code;
    }
    forget_timeout();
    if (!check_interrupt()) {
      return wait(left > INT32_MAX ? -1 : static_cast<int32_t>(left));
    }
  }
}

}  // namespace c10::npu::impl
