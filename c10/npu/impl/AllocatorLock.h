#pragma once
// The lock of a device's allocator. Every operator takes it twice, hardly ever against another thread, so it is cheaper
// than a mutex: one atomic operation to take it and none to give it back.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace c10::npu::NPUCachingAllocator {

// May be taken again by the thread that has it: what runs under it may free tensors (waiting for the device, Python's
// stack traces). A thread that does not get it spins shortly and then sleeps in slices, since the holder may be waiting
// for the device.
class AllocatorLock {
 public:
  AllocatorLock() = default;
  AllocatorLock(const AllocatorLock&) = delete;
  AllocatorLock& operator=(const AllocatorLock&) = delete;

  void lock() noexcept {
    const uintptr_t me = this_thread();
    if (owner_.load(std::memory_order_relaxed) == me) {
      ++depth_;
      return;
    }
    uintptr_t nobody = 0;
    if (!owner_.compare_exchange_strong(nobody, me, std::memory_order_acquire, std::memory_order_relaxed)) {
      wait(me);
    }
  }

  // False if another thread has it.
  bool try_lock() noexcept {
    const uintptr_t me = this_thread();
    if (owner_.load(std::memory_order_relaxed) == me) {
      ++depth_;
      return true;
    }
    uintptr_t nobody = 0;
    return owner_.compare_exchange_strong(nobody, me, std::memory_order_acquire, std::memory_order_relaxed);
  }

  void unlock() noexcept {
    if (depth_ > 0) {
      --depth_;
      return;
    }
    owner_.store(0, std::memory_order_release);
  }

 private:
  // The address of a thread-local is a number that no other living thread has.
  static uintptr_t this_thread() noexcept {
    static constinit thread_local char mark __attribute__((tls_model("initial-exec"))) = 0;
    return reinterpret_cast<uintptr_t>(&mark);
  }

  void wait(uintptr_t me) noexcept {
    constexpr int kSpins = 200;
    constexpr int kYields = 50;
    for (int turn = 0;; ++turn) {
      uintptr_t nobody = 0;
      if (owner_.load(std::memory_order_relaxed) == 0 &&
          owner_.compare_exchange_weak(nobody, me, std::memory_order_acquire, std::memory_order_relaxed)) {
        return;
      }
      if (turn < kSpins) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
      } else if (turn < kSpins + kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }

  std::atomic<uintptr_t> owner_{0};
  int depth_ = 0;  // of the owner, beyond the first
};

}  // namespace c10::npu::NPUCachingAllocator
