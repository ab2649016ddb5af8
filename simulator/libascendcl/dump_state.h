#pragma once
// What aclInit tells the dump interface.

namespace [[gnu::visibility("hidden")]] acl_sim {

// aclInit's file asked for a dump, so aclmdlInitDump is refused from now on.
void dump_is_of_init();

}  // namespace acl_sim
