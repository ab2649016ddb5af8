// Which compilations a new shape needs, and the lines that the compile log gets for it.

#include "exec/compilation/fuzzy.h"

#include "core/log.h"
#include "exec/compilation/choice.h"
#include "exec/compilation/kernel_files.h"

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

// All that tells it from other operators: where its inputs lie and how it rounds, too.
std::string identity_text(const CompiledOp& op, bool any_dims) {
  std::string text = compiled_text(op, any_dims);
  for (const auto& o : op.inputs) text += o.absent ? 'a' : o.host ? 'h' : 'd';
  if (op.rounding == CubeRounding::None) return text;
  return text + (op.rounding == CubeRounding::Hf32 ? ", HF32" : ", FP16");
}

}  // namespace

std::string identity_of(const CompiledOp& op) { return identity_text(op, false); }

void set_fuzzy_mode(bool on) { fuzzy_mode.store(on, std::memory_order_relaxed); }
void set_jit_compile(bool on) { jit_compile.store(on, std::memory_order_relaxed); }

bool needs_compilation(const CompiledOp& op) {
  const bool fuzzy = fuzzy_mode.load(std::memory_order_relaxed) || !jit_compile.load(std::memory_order_relaxed);
  const bool logged = log_enabled(LogLevel::Info), files = keeps_kernel_files();
  if (!fuzzy && !logged && !files) return true;
  auto& k = known();
  std::lock_guard<std::mutex> lock(k.mutex);
  if (fuzzy && !k.ranges.insert(identity_text(op, true)).second) return false;
  const std::string text = files ? identity_text(op, fuzzy) : std::string();
  if (files && find_on_disk(op, text)) {
    if (logged)
      log_line(LogLevel::Info, "ASCENDCL", __FILE__, __LINE__,
               "LoadOp: found in the compile cache on disk, opType = " + op.def->type);
    return false;
  }
  if (files) write_kernel_files(op, text);
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
