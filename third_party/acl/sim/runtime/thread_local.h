#pragma once
// Thread-local variables of the hot path. A library that is opened late reaches its thread-locals through a function
// call unless they lie in the static block, of which the loader keeps a little in reserve: for small ones only.

#define SIM_THREAD_LOCAL thread_local __attribute__((tls_model("initial-exec")))
