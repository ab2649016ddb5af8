#pragma once
// Which inputs an operator may overwrite while it runs, because they share memory with an output.

#include "core/task.h"
#include "exec/compilation/compile.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

inline bool may_be_overwritten(const CompiledOp& op, OpLaunch& launch, size_t input) {
  const auto& in = op.inputs[input];
  if (in.absent || in.host || in.bytes == 0) return false;
  const auto* data = static_cast<const char*>(launch.operand(input));
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const auto& out = op.outputs[i];
    const auto* written = static_cast<const char*>(launch.operand(op.inputs.size() + i));
    if (!out.absent && data < written + out.bytes && written < data + in.bytes) return true;
  }
  return false;
}

}  // namespace acl_sim
