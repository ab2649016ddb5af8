#pragma once
// Threads that still use the device while the interpreter ends.

#include <c10/macros/Macros.h>

#include <atomic>

namespace c10::npu::impl {

// Note [Daemon threads at exit]
// Once Python finalises, a daemon thread that asks for its lock is ended on the spot, which unwinds the C++ frames
// below it and so terminates the process: any operator does that when it returns. Hence, from npu_shutdown on, a thread
// other than the one that shuts down stays in the device layer, where it enters or leaves it. One that holds Python's
// lock goes on, since the interpreter waits for that.
extern std::atomic<bool> exiting;
void park_at_exit();

inline void stay_if_exiting() {
  if (C10_UNLIKELY(exiting.load(std::memory_order_relaxed))) {
    park_at_exit();
  }
}

// Called by the thread that shuts down, without Python's lock: from now on others stay. Gives `threads` of them time to
// arrive.
void begin_exit(int threads);
// Called by the same thread when the devices are done: nobody need wait for those that stay.
void end_exit();

}  // namespace c10::npu::impl
