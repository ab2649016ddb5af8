#pragma once
// Free lists for small objects that callers create and destroy with every operator: one list per thread, what it does
// not need goes to a common one. Objects are never returned to the heap, so their first bytes stay readable.

#include <mutex>

namespace acl_sim {

// T has a member `T* next_free`.
template <class T>
class FreeList {
 public:
  static T* take() {
    auto& mine = cache();
    if (T* object = mine.head) {
      mine.head = object->next_free;
      --mine.count;
      return object;
    }
    return refill();
  }

  static void give(T* object) {
    auto& mine = cache();
    if (__builtin_expect(mine.count >= kMost, 0)) {
      auto& all = common();
      std::lock_guard<std::mutex> lock(all.mutex);
      object->next_free = all.head;
      all.head = object;
      return;
    }
    object->next_free = mine.head;
    mine.head = object;
    ++mine.count;
  }

 private:
  static constexpr int kMost = 512;

  struct Common {
    std::mutex mutex;
    T* head = nullptr;
  };
  struct Cache {
    T* head = nullptr;
    int count = 0;
    ~Cache() {
      while (head) {
        T* object = head;
        head = object->next_free;
        auto& all = common();
        std::lock_guard<std::mutex> lock(all.mutex);
        object->next_free = all.head;
        all.head = object;
      }
      count = kMost;  // a call after this thread's end goes to the common list
    }
  };

  static Common& common() {
    static auto* value = new Common;
    return *value;
  }
  static Cache& cache() {
    static thread_local Cache value;
    return value;
  }
  static T* refill() {
    auto& all = common();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (T* object = all.head) {
      all.head = object->next_free;
      return object;
    }
    return new T;
  }
};

}  // namespace acl_sim
