#pragma once
// What concerns the process as a whole: whether it uses a device, forks, and its end.
//
// Note [Exit]
// A process may end with queued work, running workers, or an exception in flight. When its exit handlers run, workers
// finish the task they are in (hung ones are released) and then stay parked until the process is gone; queued tasks
// are dropped, as a card's are. Nothing of the simulator is ever destroyed: threads may still call in.

namespace acl_sim {

// Called when the first device is opened: from then on a fork is refused, and exit is watched.
void mark_in_use();
bool in_use();
// True once the exit handlers run: waits end and workers park.
bool exiting();
bool forked_in_use();

}  // namespace acl_sim
