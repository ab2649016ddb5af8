#pragma once
// The queued tasks of a stream, by number: task n lies in slot n modulo the size until it has run.

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>

#include "core/task.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class TaskRing {
 public:
  // A host that runs ahead of its device is held there: queued work has memory of its own.
  static constexpr uint64_t kSize = 2048;

  // Makes the slots at the first use; throws std::bad_alloc. They stay as long as the process.
  void make() {
    if (__builtin_expect(slots_.load(std::memory_order_acquire) != nullptr, 1)) return;
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    if (slots_.load(std::memory_order_relaxed)) return;
    // Zeros, of which the kernel gives pages as they are touched.
    void* at = ::mmap(nullptr, kSize * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    slots_.store(static_cast<Slot*>(at), std::memory_order_release);
  }

  // The slot must be free: fewer than kSize tasks between it and the last one that has run.
  void put(const Task& task) {
    Slot& slot = at(task.id);
    std::memcpy(static_cast<void*>(&slot.task), &task, sizeof(Task));
    slot.ready.store(task.id, std::memory_order_release);
  }

  bool has(uint64_t id) const {
    const Slot* slots = slots_.load(std::memory_order_acquire);
    return slots && slots[id % kSize].ready.load(std::memory_order_acquire) == id;
  }

  // Of a task whose number has been given; stays valid until the task has been reported as completed.
  Task& task(uint64_t id) { return at(id).task; }

 private:
  struct alignas(64) Slot {
    std::atomic<uint64_t> ready;  // the number of the task that lies here; 0: none yet
    Task task;
  };

  Slot& at(uint64_t id) { return slots_.load(std::memory_order_acquire)[id % kSize]; }

  std::atomic<Slot*> slots_{nullptr};
};

}  // namespace acl_sim
