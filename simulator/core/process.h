#pragma once
// What concerns the process as a whole: whether it uses a device, forks, and its end.
//
// Note [Exit]
// A process may end with queued work, running workers, or an exception in flight. When its exit handlers run, workers
// finish the task they are in (hung ones are released) and then stay parked until the process is gone; queued tasks
// are dropped, as a card's are. Nothing of the simulator is ever destroyed: threads may still call in.

#include <atomic>

namespace [[gnu::visibility("hidden")]] acl_sim {
namespace detail {
extern std::atomic<bool> in_use, exiting;
}  // namespace detail

// Called when the first device is opened: from then on a fork is refused, and exit is watched.
void mark_in_use();
inline bool in_use() { return detail::in_use.load(std::memory_order_relaxed); }
// True once the exit handlers run: waits end and workers park.
inline bool exiting() { return detail::exiting.load(std::memory_order_seq_cst); }
bool forked_in_use();

}  // namespace acl_sim
