#pragma once
// What a dump configuration says, checked.

#include <string>

#include "core/json.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

struct DumpConfig {
  std::string path;  // absolute
  bool inputs = false, outputs = true;
  bool single_operators = false;  // dump_op_switch
  bool overflow_only = false;     // dump_debug
};

// Reads {"dump": {...}} and makes the dump folder. `file` is for messages. Throws Error(ACL_ERROR_INVALID_DUMP_CONFIG)
// naming the field, ACL_ERROR_INVALID_FILE for a folder that cannot be written to.
DumpConfig read_dump_config(const std::string& file, const Json& whole);

}  // namespace acl_sim
