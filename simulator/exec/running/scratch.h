#pragma once
// Temporary memory of executing operators.
//
// Note [Scratch]
// A kernel's temporaries, and results of kernels without an out= form, come from ATen's CPU allocator. Taking them from
// the host's heap would map and fault large blocks anew each time, and taking them from the memory that the host hands
// out would overwrite blocks that queued work still reads. So the CPU allocator is replaced by one that serves threads
// that execute device work from a pool of their own, and all others from the allocator that was there before. Who frees
// a block is decided by its address, so that either may free what the other made.

#include <cstddef>

namespace [[gnu::visibility("hidden")]] acl_sim {

void install_scratch_allocator();

// While one of these exists, the thread's allocations are scratch.
class ScratchScope {
 public:
  ScratchScope();
  ~ScratchScope();
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  bool before_;
};

// The next allocation of exactly that many bytes by this thread, inside its ScratchScope, returns `place`.
void place_next_allocation(void* place, size_t bytes);
void forget_placement();

void scratch_usage(size_t* used, size_t* peak);

}  // namespace acl_sim
