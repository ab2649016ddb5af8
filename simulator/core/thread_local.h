#pragma once
// Thread-local variables of the hot path. A library that is opened late reaches its thread-locals through a function
// call unless they lie in the static block, of which the loader keeps a little in reserve: for small ones only.

#define SIM_THREAD_LOCAL thread_local __attribute__((tls_model("initial-exec")))

// Note [Hidden namespaces]
// Headers of the simulator open their namespace as [[gnu::visibility("hidden")]]: calls inside the library are then
// direct and can be inlined. Only the C entry points, exceptions and what operators see (exec/definition/op.h) stay
// visible.
