#pragma once
// Errors inside the simulator: exceptions that carry an ACL code, and the message that aclGetRecentErrMsg gives back.

#include <acl/acl_base.h>

#include <stdexcept>
#include <string>

#include "format.h"

namespace acl_sim {

class Error : public std::runtime_error {
 public:
  Error(aclError code, const std::string& reason) : std::runtime_error(reason), code(code) {}
  aclError code;
};

// Remembers the failure for this thread's aclGetRecentErrMsg and aclrtGetLastError, logs it, and returns the code.
aclError fail(aclError code, const std::string& text);
// The same without a log line, for a failure that was logged where it happened.
aclError report(aclError code, const std::string& text);

// The message of this thread's last failure, or nullptr; taking it clears it. Valid until the next call.
const char* take_recent_message();
aclError last_error(bool clear);

// "ACL_ERROR_RT_MEMORY_ALLOCATION"-like name of a code, or its number.
std::string error_name(aclError code);

}  // namespace acl_sim
