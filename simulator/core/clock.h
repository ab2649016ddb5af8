#pragma once
// The machine's clocks in nanoseconds.

#include <cstdint>
#include <ctime>

namespace [[gnu::visibility("hidden")]] acl_sim {

inline int64_t clock_ns(clockid_t which) {
  timespec now{};
  ::clock_gettime(which, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

}  // namespace acl_sim
