#pragma once
// Memory for the objects that callers hold as handles. A pool's objects lie in one reservation and are never unmapped,
// so that any pointer, stale or made up, can be checked without touching foreign memory.

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

namespace [[gnu::visibility("hidden")]] acl_sim {

// T has a public `std::atomic<bool> alive`, set while a caller may use the handle.
template <class T, size_t kMost>
class HandlePool {
 public:
  // nullptr when all handles are in use. The object is constructed once and reused; the caller prepares it.
  T* take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!free_.empty()) {
      T* object = free_.back();
      free_.pop_back();
      return object;
    }
    if (!base_) {
      void* at = ::mmap(nullptr, kMost * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1, 0);
      if (at == MAP_FAILED) return nullptr;
      base_.store(static_cast<T*>(at), std::memory_order_release);
    }
    const size_t made = made_.load(std::memory_order_relaxed);
    if (made == kMost) return nullptr;
    T* object = new (base_.load(std::memory_order_relaxed) + made) T;
    made_.store(made + 1, std::memory_order_release);
    return object;
  }

  void give(T* object) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(object);
  }

  // The object behind a handle, or nullptr if it is none of this pool's live ones.
  T* check(const void* handle) const {
    T* base = base_.load(std::memory_order_acquire);
    const auto offset = static_cast<size_t>(static_cast<const char*>(handle) - reinterpret_cast<const char*>(base));
    if (!base || offset >= made_.load(std::memory_order_acquire) * sizeof(T) || offset % sizeof(T)) return nullptr;
    T* object = base + offset / sizeof(T);
    return object->alive.load(std::memory_order_acquire) ? object : nullptr;
  }

  template <class F>
  void each(F&& visit) {
    const size_t made = made_.load(std::memory_order_acquire);
    for (size_t i = 0; i < made; ++i) {
      T* object = base_.load(std::memory_order_relaxed) + i;
      if (object->alive.load(std::memory_order_acquire)) visit(*object);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<T*> free_;
  std::atomic<T*> base_{nullptr};
  std::atomic<size_t> made_{0};
};

}  // namespace acl_sim
