#pragma once
// What only the loading of further operators asks of the table that find_op looks into.

#include <string_view>

namespace [[gnu::visibility("hidden")]] acl_sim {

// Whether an operator of this type was registered, be it one that ASCEND_SIM_OPERATORS leaves out.
bool is_defined(std::string_view type);

}  // namespace acl_sim
