#pragma once
// What aclInit tells the dump interface.

namespace acl_sim [[gnu::visibility("hidden")]] {

// aclInit's file asked for a dump, so aclmdlInitDump is refused from now on.
void dump_is_of_init();

}  // namespace gnu::visibility("hidden")]]
