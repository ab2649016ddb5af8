// Which compilations a new shape needs, and the lines that the compile log gets for it.

#include "exec/compilation/fuzzy.h"

#include "core/log.h"

#include <atomic>
#include <mutex>
#include <set>

namespace acl_sim {
namespace {

std::atomic<bool> fuzzy_mode{false}, jit_compile{true};

struct Known {
  std::mutex mutex;
  std::set<std::string> ranges;              // what fuzzy compilations cover
  std::set<std::string, std::less<>> types;  // compiled in any mode
};

Known& known() {
  static auto* value = new Known;  // outlives the threads that still run while the process exits
  return *value;
}

// One list of operands as the log shows it. A fuzzy compilation is for any dims of these ranks.
std::string operands_text(const std::vector<Operand>& operands, bool any_dims) {
  std::string text;
  for (const auto& o : operands) {
    const std::vector<int64_t> unknown(o.dims.size(), -1);
    const auto& dims = any_dims ? unknown : o.dims;
    text += (text.empty() ? "" : ", ") + describe_tensor(o.dtype, dims.data(), static_cast<int>(dims.size()), o.format);
  }
  return text;
}

std::string compiled_text(const CompiledOp& op, bool any_dims) {
  return op.def->type + ", Input: {" + operands_text(op.inputs, any_dims) + "}, Output: {" +
         operands_text(op.outputs, any_dims) + "}, Attr: {" + op.attrs.describe() + "}.";
}

std::string range_of(const CompiledOp& op) {
  std::string range = compiled_text(op, true);
  for (const auto& o : op.inputs) range += o.absent ? 'a' : o.host ? 'h' : 'd';
  return range;
}

}  // namespace

void set_fuzzy_mode(bool on) { fuzzy_mode.store(on, std::memory_order_relaxed); }
void set_jit_compile(bool on) { jit_compile.store(on, std::memory_order_relaxed); }

bool needs_compilation(const CompiledOp& op) {
  const bool fuzzy = fuzzy_mode.load(std::memory_order_relaxed) || !jit_compile.load(std::memory_order_relaxed);
  const bool logged = log_enabled(LogLevel::Info);
  if (!fuzzy && !logged) return true;
  auto& k = known();
  std::lock_guard<std::mutex> lock(k.mutex);
  if (fuzzy && !k.ranges.insert(range_of(op)).second) return false;
  if (logged) {
    const auto line = [](const std::string& text) { log_line(LogLevel::Info, "ASCENDCL", __FILE__, __LINE__, text); };
    const bool new_type = k.types.insert(op.def->type).second;
    line(std::string("MatchOpModel: Match op ") + (new_type ? "type" : "inputs") + " failed, opType = " + op.def->type);
    line("CompileOp: To compile op, opType = " + op.def->type + ", mode = " + (fuzzy ? "fuzzy" : "exact"));
    // Tools cut this line at "OpType: " and drop its last character.
    line("aclopCompile: aclopCompile::aclOp OpType: " + compiled_text(op, fuzzy));
  }
  return true;
}

}  // namespace acl_sim
