#pragma once
// Note [Saturation]
// In saturation mode (aclrtSetDeviceSatMode) a result that is too large for its type becomes the largest number of that
// type with its sign, and NaN becomes 0. The device computes with infinities all the same and changes an operator's
// fp16, bf16 and fp32 results when it has ended: what overflows on the way inside an operator, a sum that comes back
// into range say, is not saturated on the way. Operators that only move, choose, fill or change a sign leave values as
// they are, those of the AI CPU, too. In this mode the device always looks for overflows, and the float status tells of
// them. The mode holds for streams made afterwards and for the default stream of the context that sets it.

#include "core/task.h"
#include "exec/compilation/compile.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

void saturate_results(const CompiledOp& op, OpLaunch& launch);

}  // namespace acl_sim
