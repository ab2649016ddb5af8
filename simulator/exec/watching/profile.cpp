// What the profiler is told of operators.

#include "core/profile.h"
#include "core/executor.h"
#include "exec/compilation/compile.h"
#include "exec/definition/tensor_desc.h"

#include <string>
#include <vector>

namespace acl_sim {
namespace {

// The fields of one side: shapes, dtypes, formats.
std::string describe_side(const std::vector<Operand>& operands) {
  std::string shapes, dtypes, formats;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& o = operands[i];
    if (i) {
      shapes += ';';
      dtypes += ';';
      formats += ';';
    }
    for (size_t k = 0; k < o.dims.size() && !o.absent; ++k) shapes += (k ? "," : "") + std::to_string(o.dims[k]);
    dtypes += o.absent ? "DT_UNDEFINED" : dtype_name(o.dtype);
    formats += o.absent ? "NULL" : format_name(o.format);
  }
  return shapes + '\t' + dtypes + '\t' + formats;
}

}  // namespace

uint32_t describe_op(const Task& task, uint64_t* bytes) noexcept {
  const CompiledOp& op = *task.op.op;
  *bytes = 0;
  for (size_t i = 0; i < op.inputs.size() + op.outputs.size(); ++i) {
    const Operand& o = op.operand(i);
    if (!o.host && !o.absent) *bytes += o.bytes;
  }
  uint32_t text = op.text.load(std::memory_order_relaxed);
  if (text != 0) return text;
  try {
    std::string attributes = op.attrs.describe();
    for (char& c : attributes) {
      if (c == '\t' || c == '\n') c = ' ';
    }
    text = text_number(op.def->type + '\t' + (op.def->on_ai_cpu ? "AI_CPU" : "AI_CORE") + '\t' +
                       describe_side(op.inputs) + '\t' + describe_side(op.outputs) + '\t' + attributes);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  op.text.store(text, std::memory_order_relaxed);
  return text;
}

}  // namespace acl_sim
