// See Note [Interrupts] in Interrupt.h.

#include <c10/npu/impl/Interrupt.h>

#include <c10/npu/NPUException.h>
#include <c10/npu/NPUFunctions.h>

#include <atomic>

namespace c10::npu::impl {
namespace {

std::atomic<InterruptCheck> current{nullptr};
std::atomic<bool> interrupted{false};
thread_local bool in_scope = false;

}  // namespace

void set_interrupt_check(InterruptCheck check) { current.store(check); }

InterruptScope::InterruptScope() : before_(in_scope) { in_scope = true; }
InterruptScope::~InterruptScope() { in_scope = before_; }

bool looks_for_interrupts() { return in_scope && current.load(std::memory_order_relaxed) != nullptr && is_simulator(); }

bool check_interrupt() {
  const InterruptCheck check = current.load();
  if (check == nullptr) {
    return false;
  }
  in_scope = false;  // what the handler waits for is its own business
  try {
    const bool goes_on = check();
    in_scope = true;
    return goes_on;
  } catch (...) {
    in_scope = true;
    interrupted.store(true);
    throw;
  }
}

bool was_interrupted() { return interrupted.load(); }
void forget_interrupt() { interrupted.store(false); }

void forget_timeout() { take_recent_error(); }

}  // namespace c10::npu::impl
