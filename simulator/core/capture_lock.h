#pragma once
// The one lock over the bookkeeping of captures, for the files that share it. See Note [Capture].

#include <mutex>

namespace [[gnu::visibility("hidden")]] acl_sim {

std::mutex& captures_mutex();

class CaptureLock {
 public:
  CaptureLock() : lock_(captures_mutex()) {}

 private:
  std::lock_guard<std::mutex> lock_;
};

}  // namespace acl_sim
