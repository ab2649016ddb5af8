#include "core/process.h"

#include "core/executor.h"
#include "core/guard.h"
#include "core/stream.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

namespace acl_sim {
namespace detail {
std::atomic<bool> forked_in_use{false};
std::atomic<bool> in_use{false}, exiting{false};
}  // namespace detail

namespace {

void at_exit() {
  if (detail::forked_in_use.load()) return;  // the workers are the parent's
  detail::exiting.store(true, std::memory_order_seq_cst);
  park_workers();
}

void in_child() {
  if (detail::in_use.load()) detail::forked_in_use.store(true);
}

}  // namespace

void mark_in_use() {
  static std::once_flag once;
  std::call_once(once, [] {
    prepare_process();
    detail::in_use.store(true);
    ::pthread_atfork(nullptr, nullptr, in_child);
    std::atexit(at_exit);
  });
}

bool forked_in_use() { return detail::forked_in_use.load(std::memory_order_relaxed); }

}  // namespace acl_sim
