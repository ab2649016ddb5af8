#pragma once
// Stands between the exported C functions and the C++ behind them: exceptions become codes, and a process that was
// forked after the device was in use is refused, because its threads did not come along.

#include <acl/acl_base.h>

#include <atomic>
#include <utility>

namespace acl_sim {
namespace detail {

extern std::atomic<bool> forked_in_use;
aclError caught(const char* function);
aclError refuse_after_fork(const char* function);

}  // namespace detail

template <class F>
inline aclError guard(const char* function, F&& body) noexcept {
  if (__builtin_expect(detail::forked_in_use.load(std::memory_order_relaxed), 0))
    return detail::refuse_after_fork(function);
  try {
    return body();
  } catch (...) {
    return detail::caught(function);
  }
}

template <class R, class F>
inline R guard_value(const char* function, R failure, F&& body) noexcept {
  if (__builtin_expect(detail::forked_in_use.load(std::memory_order_relaxed), 0)) {
    detail::refuse_after_fork(function);
    return failure;
  }
  try {
    return body();
  } catch (...) {
    detail::caught(function);
    return failure;
  }
}

template <class F>
inline void guard_void(const char* function, F&& body) noexcept {
  if (__builtin_expect(detail::forked_in_use.load(std::memory_order_relaxed), 0)) return;
  try {
    body();
  } catch (...) {
    detail::caught(function);
  }
}

// For what needs no device and must work in a forked child too, such as reading the refusal's message.
template <class R, class F>
inline R guard_anywhere(const char* function, R failure, F&& body) noexcept {
  try {
    return body();
  } catch (...) {
    detail::caught(function);
    return failure;
  }
}

}  // namespace acl_sim
