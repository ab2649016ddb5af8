// Parks threads in the device layer when the interpreter ends.

#include <c10/npu/impl/Exit.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace c10::npu::impl {

std::atomic<bool> exiting{false};

namespace {

using HoldsLock = int (*)();

std::thread::id exiting_thread;
HoldsLock holds_python_lock = nullptr;

}  // namespace

void begin_exit(int threads) {
  // The interpreter is found at run time: without one nothing ends threads, and none need to stay.
  holds_python_lock = reinterpret_cast<HoldsLock>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (holds_python_lock == nullptr || holds_python_lock() != 0) {
    return;
  }
  exiting_thread = std::this_thread::get_id();
  exiting.store(true, std::memory_order_release);
  // Long enough for each that is in Python to come to its next operator: they take turns of 5 ms.
  std::this_thread::sleep_for(std::chrono::milliseconds(std::min(10 + 10 * threads, 200)));
}

void park_at_exit() {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (std::this_thread::get_id() == exiting_thread || holds_python_lock() != 0) {
    return;
  }
  while (true) {
    pause();
  }
}

}  // namespace c10::npu::impl
