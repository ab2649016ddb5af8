#pragma once
// What only the loading of further operators asks of the table that find_op looks into.

#include <string_view>

namespace acl_sim [[gnu::visibility("hidden")]] {

// Whether an operator of this type was registered, be it one that ASCEND_SIM_OPERATORS leaves out.
bool is_defined(std::string_view type);

}  // namespace gnu::visibility("hidden")]]
