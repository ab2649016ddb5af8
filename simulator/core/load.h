#pragma once
// Whether others take the cores that this process computes on.
//
// Note [Busy machines]
// On a quiet machine work goes from thread to thread: the worker has a core of its own beside the host, waiters spin,
// and the helpers of a team are bound to cores (Note [Placement]). Beside a process that computes without end each of
// these costs more than it brings: who is woken waits for a time slice, who spins takes it from the threads it waits
// for, and a bound helper shares its core while another may be free. So on a busy machine the host's thread runs
// operators itself up to a size at which it does not matter (CompiledOp::modest), waiters sleep at once, and nobody is
// bound. Which thread runs an operator, and how long it looks for work, is all that depends on it: the number of
// threads of a team does not, since results may.

namespace [[gnu::visibility("hidden")]] acl_sim {

// As of the last look at /proc/stat, a fifth of a second ago at most while somebody asks. Costs a clock's reading.
bool machine_is_busy();

}  // namespace acl_sim
