#pragma once
// Note [Interrupts]
// Waits that end when the user asks: Ctrl-C is looked for while the main thread waits for a device. What the check
// calls is the user's handler, which may use the device itself, and may throw. So only waits inside an InterruptScope
// are looked into: those that a program asks for by name (synchronize), and the wait before a copy to the host, none of
// which holds a lock or leaves something behind that the device still uses. A card is not: what the time-out of one
// wait does to its stream is not documented.

#include <acl/acl_base.h>
#include <acl/acl_rt.h>
#include <c10/npu/NPUMacros.h>

#include <algorithm>
#include <cstdint>

namespace c10::npu::impl {

class C10_NPU_API InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  bool before_;
};

// Throws if the process was asked to stop what it is doing. Returns false on a thread that nobody interrupts.
using InterruptCheck = bool (*)();

// Whoever runs a language set its check here; without one nothing is looked for.
C10_NPU_API void set_interrupt_check(InterruptCheck check);
// Looks: as the check does, and notes that the process was interrupted. That is forgotten when a device has come to
// the end of its work.
C10_NPU_API bool check_interrupt();
C10_NPU_API bool was_interrupted();
C10_NPU_API void forget_interrupt();
// Whether this thread is inside a scope, and its waits can be cut.
C10_NPU_API bool looks_for_interrupts();
// Forgets the text that a slice's time-out left with ACL.
C10_NPU_API void forget_timeout();

// Calls `wait(milliseconds)`, an aclrtSynchronize...WithTimeout, until it ends other than by `timed_out` or the
// time-out (none if not positive) is over. What is waited for is in order still when check_interrupt() throws.
template <class Wait>
aclError wait_in_slices(int32_t timeout_ms, aclError timed_out, const Wait& wait) {
  if (!looks_for_interrupts()) {
    return wait(timeout_ms > 0 ? timeout_ms : -1);
  }
  constexpr int64_t kSlice = 250;
  for (int64_t left = timeout_ms > 0 ? timeout_ms : INT64_MAX;;) {
    const int64_t slice = std::min(left, kSlice);
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
