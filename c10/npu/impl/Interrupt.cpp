// Who is asked for interrupts, and whether there was one.

#include <c10/npu/impl/Interrupt.h>

#include <c10/npu/NPUException.h>
#include <c10/npu/NPUFunctions.h>

#include <atomic>

namespace c10::npu::impl {
namespace {

std::atomic<InterruptCheck> current{nullptr};
std::atomic<bool> interrupted{false};

}  // namespace

void set_interrupt_check(InterruptCheck check) { current.store(check); }

bool check_interrupt() {
  const InterruptCheck check = current.load();
  if (check == nullptr) {
    return false;
  }
  try {
    return check();
  } catch (...) {
    interrupted.store(true);
    throw;
  }
}

bool was_interrupted() { return interrupted.load(); }

int64_t slice_ms() { return is_simulator() ? 250 : 5000; }

void forget_timeout() { take_recent_error(); }

}  // namespace c10::npu::impl
