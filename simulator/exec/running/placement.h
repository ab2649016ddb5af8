#pragma once
// Where the threads of a worker's OpenMP team run.
//
// Note [Placement]
// A team that has as many threads as the process has cores needs each of them on a core of its own. The kernel's
// scheduler often does otherwise: the host spins for the result, so when the worker starts a parallel region no core
// looks idle, and worker and helper share one until the balancer comes by, several milliseconds later. A large operator
// then takes up to twice its time. So helpers are bound to the cores on which the worker is not; the worker itself
// stays free to move, and they are bound anew when it has. On a busy machine (Note [Busy machines]) a bound helper
// would wait for its core while another is free, so there nobody is bound.

namespace [[gnu::visibility("hidden")]] acl_sim {

// Called by a worker before a large operator that `threads` threads will compute.
void place_team(int threads);

}  // namespace acl_sim
