#pragma once
// Numbers that are never given twice in a process. Each thread takes them from a block of its own.

#include <atomic>
#include <cstdint>

#include "core/thread_local.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class Stamp {
 public:
  static uint64_t next() {
    if (__builtin_expect(next_ == end_, 0)) {
      constexpr uint64_t kBlock = uint64_t{1} << 20;
      next_ = blocks_.fetch_add(kBlock, std::memory_order_relaxed);
      end_ = next_ + kBlock;
    }
    return next_++;
  }

 private:
  static inline std::atomic<uint64_t> blocks_{1};
  static inline SIM_THREAD_LOCAL uint64_t next_ = 0, end_ = 0;
};

}  // namespace acl_sim
