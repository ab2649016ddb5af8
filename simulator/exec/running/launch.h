#pragma once
// Compiling and launching operators, as the aclop* functions ask for it. Both throw Error for what a caller did wrong.

#include <acl/acl.h>

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Description;

aclError compile_only(const Description& description);
// With only_known, an operator that was not compiled before is refused.
aclError launch(const Description& description, const aclDataBuffer* const* inputs, aclDataBuffer* const* outputs,
                aclrtStream stream, bool only_known);

}  // namespace acl_sim
