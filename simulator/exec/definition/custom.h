#pragma once
// Opens the libraries of custom operators that ASCEND_CUSTOM_OPP_PATH names; see custom_op.h for what they hold.

namespace [[gnu::visibility("hidden")]] acl_sim {

// Does its work once. Throws Error(ACL_ERROR_INVALID_FILE), each time, with the path and what is wrong with it.
void load_custom_ops();

}  // namespace acl_sim
