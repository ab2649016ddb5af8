#pragma once
// Free lists for small objects that callers create and destroy with every operator: one list per thread, what it does
// not need goes to a common one. Objects are never returned to the heap, so their first bytes stay readable.

#include <mutex>

#include "core/thread_local.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

// T has a member `T* next_free`.
template <class T>
class FreeList {
 public:
  static T* take() {
    if (T* object = head_; __builtin_expect(object != nullptr, 1)) {
      head_ = object->next_free;
      --count_;
      return object;
    }
    return refill();
  }

  static void give(T* object) {
    if (__builtin_expect(count_ >= kMost, 0)) {
      give_to_all(object);
      return;
    }
    object->next_free = head_;
    head_ = object;
    ++count_;
  }

 private:
  static constexpr int kMost = 512;

  struct Common {
    std::mutex mutex;
    T* head = nullptr;
  };
  // Hands a thread's list over when the thread ends; made when the thread first finds its list empty.
  struct Heir {
    ~Heir() {
      while (head_) {
        T* object = head_;
        head_ = object->next_free;
        give_to_all(object);
      }
      count_ = kMost;  // what comes later goes to the common list
    }
  };

  static Common& common() {
    static auto* value = new Common;
    return *value;
  }

  static void give_to_all(T* object) {
    auto& all = common();
    std::lock_guard<std::mutex> lock(all.mutex);
    object->next_free = all.head;
    all.head = object;
  }

  static T* refill() {
    static thread_local Heir heir;
    (void)heir;
    auto& all = common();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (T* object = all.head) {
      all.head = object->next_free;
      return object;
    }
    return new T;
  }

  static inline SIM_THREAD_LOCAL T* head_ = nullptr;
  static inline SIM_THREAD_LOCAL int count_ = 0;
};

}  // namespace acl_sim
