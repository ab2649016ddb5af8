#pragma once
// Whether others take the cores that this process computes on.
//
// Note [Busy machines]
// On a quiet machine work goes from thread to thread: the worker has a core of its own beside the host, waiters spin,
// and the other threads of a worker's team are bound to cores (Note [Placement]). When another process computes all the
// time, each of these costs more than it gains: a thread that is woken has to wait for a core, a thread that spins
// takes the core from those it waits for, and a bound thread shares its core while another may be free. So on a busy
// machine the host's thread runs larger operators itself (CompiledOp::modest), waiters sleep at once, and no thread is
// bound. Nothing else depends on it. In particular the number of threads of a team is always the same, however busy the
// machine is and however many streams compute, because results may depend on it. Element-wise operators whose results
// cannot depend on it have one thread up to a larger size (has_one_thread in exec/running/run.cpp).

#include <cstdint>

namespace [[gnu::visibility("hidden")]] acl_sim {

// Elements of a copy that are worth a thread: `quiet` of them, and many more while a team would wait for its cores.
int64_t grain_of_copies(int64_t quiet);

// As of the last look at /proc/stat, a fifth of a second ago at most while somebody asks. Costs a clock's reading.
bool machine_is_busy();

}  // namespace acl_sim
