#pragma once
// The one place where the simulator reads the environment. In a header, since the simulator's libraries share no code.
// docs/variables.yaml lists every variable with its type, default and meaning; test_variables.py compares.

#include <cstdlib>

namespace [[gnu::visibility("hidden")]] acl_sim {

// The value of a variable, null where it is unset.
inline const char* environment(const char* name) { return std::getenv(name); }

}  // namespace acl_sim
