#pragma once
// Finding the compiled operator for a launch.
//
// Note [Compile cache]
// An operator is compiled once for each description of a launch: type, shapes, dtypes, formats, attributes. The
// description as a row of 64-bit numbers is the key of one table for the process. In front of it each thread has two
// small tables of what it used last. One is by key. The other is by the stamps of the descriptors: a program that
// launches with the same descriptors again is found there without a look at what they hold.
//
// Note [Eviction]
// When the table is full, it drops the operators that were not used since it was full before, and raises `generation`;
// a thread that sees a new generation empties its small tables. A dropped operator may still be in use: by a launch
// that is under way, or by a queued task. So later evictions free it, in two steps. The first step is done when no
// thread is inside a launch that began before the drop: from then on no new task can refer to it. The second is done
// when all tasks that were queued at that time have run. To look an operator up is cheap because of this: a launch only
// sets a flag of its thread (LaunchScope), by a plain store without a barrier. The eviction issues the barrier for all
// threads (membarrier) where the kernel offers it; elsewhere so many compilations lie between two evictions that every
// flag has been seen by then.

#include <atomic>
#include <cstdint>

#include "core/thread_local.h"
#include "exec/compilation/compile.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

namespace detail {

// What a thread tells the others about its small tables.
struct ThreadMark {
  std::atomic<bool> inside{false};  // a launch
  std::atomic<uint64_t> generation{0};
};
inline SIM_THREAD_LOCAL ThreadMark* thread_mark = nullptr;
extern std::atomic<uint64_t> generation;
ThreadMark* make_thread_mark();
void empty_thread_tables(ThreadMark& mark, uint64_t generation);

}  // namespace detail

// Compiled operators that are found inside stay until it ends; tasks submitted inside keep theirs until they have run.
class LaunchScope {
 public:
  LaunchScope() : mark_(detail::thread_mark ? *detail::thread_mark : *detail::make_thread_mark()) {
    if (mark_.inside.load(std::memory_order_relaxed)) return;  // inside another launch, whose findings must stay
    outermost_ = true;
    mark_.inside.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const uint64_t generation = detail::generation.load(std::memory_order_acquire);
    if (__builtin_expect(mark_.generation.load(std::memory_order_relaxed) != generation, 0))
      detail::empty_thread_tables(mark_, generation);
  }
  ~LaunchScope() {
    if (outermost_) mark_.inside.store(false, std::memory_order_release);
  }
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;

  // The operator for a description, compiled if that has not happened yet. Throws Error with ACL's code and the reason.
  // With only_known, an operator that has not been compiled throws ACL_ERROR_OP_NOT_FOUND.
  const CompiledOp& find(const Description& d, bool only_known, bool* fresh);
  // For aclopCompile: the same, but the operator is never evicted.
  const CompiledOp& find_and_keep(const Description& d, bool* fresh);

 private:
  detail::ThreadMark& mark_;
  bool outermost_ = false;
};

// Makes every thread forget what its small tables hold: an option has changed what a description stands for.
void look_up_again();

// How many compiled operators are in memory, those included that wait to be freed.
uint64_t compiled_ops();

}  // namespace acl_sim
