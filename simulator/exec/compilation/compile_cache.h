#pragma once
// Finding the compiled operator for a launch.
//
// Note [Compile cache]
// The key is the launch as the caller describes it, as a row of 64-bit words; one table holds all compiled operators.
// In front of it each thread has two small ones of what it used last: by the stamps of descriptors that are launched
// again and again, without looking inside, and by key.
//
// Note [Eviction]
// When the table is full, operators that were not used since the last time are taken out of it, and the generation
// grows, at which every thread empties its small tables before its next look-up. Who may still have a pointer is a
// launch that was under way, or a task. So what was taken out is kept until, at a later eviction, no thread is inside a
// launch that began before, and, at one later still, the tasks that were queued by then have run. That makes look-ups
// free of atomic read-modify-writes: a launch only notes that it is inside. The note needs no barrier, since evictions
// lie many compilations apart and issue one for all threads (membarrier) where the kernel offers it.

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

// Makes every thread look up in the table of all again, since an option has changed what a description stands for.
void look_up_again();

// How many compiled operators are in memory, those included that wait to be freed.
uint64_t compiled_ops();

}  // namespace acl_sim
