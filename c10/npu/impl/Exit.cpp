// Parks threads in the device layer when the interpreter ends.

#include <c10/npu/impl/Exit.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace c10::npu::impl {

std::atomic<bool> exiting{false};

namespace {

using HoldsLock = int (*)();

std::thread::id exiting_thread;
std::atomic<int> parked{0};
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
  // Read anew: what the exiting thread wrote before it said so is needed here.
  if (!exiting.load(std::memory_order_acquire)) {
    return;
  }
  if (std::this_thread::get_id() == exiting_thread || holds_python_lock() != 0) {
    return;
  }
  parked.fetch_add(1);
  while (true) {
    pause();
  }
}

void end_exit() {
  // The autograd engine waits ten seconds for its threads, of which one may stay here.
  if (parked.load() > 0) {
    setenv("TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT", "0", /*overwrite=*/0);
  }
}

}  // namespace c10::npu::impl
