#pragma once
// Work that another library of the simulator (libhccl) puts into a stream's order.
//
// Note [Failed collectives]
// A collective runs on a stream of its own, which the program never waits for by name: its own stream waits for an
// event. So the failure of such work goes where the order goes: an event recorded behind it carries the reason, and a
// stream that waits for that event fails with it. The host learns of it at its next wait for either.

#include "core/task.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Stream;

// True if it failed, and has marked the stream.
bool run_external(ExternalWork& work, Stream& stream, const Task& task) noexcept;
void drop_external(ExternalWork& work) noexcept;

}  // namespace acl_sim
