#include "exec/compilation/small.h"

#include "core/task.h"
#include "exec/compilation/compile.h"

#include <map>
#include <string>

namespace acl_sim {
namespace {

std::map<std::string, SmallChoice, std::less<>>& choices() {
  static auto* value = new std::map<std::string, SmallChoice, std::less<>>;
  return *value;
}

}  // namespace

bool register_small(const char* type, SmallChoice choice) { return choices().emplace(type, choice).second; }

SmallFn small_way(const CompiledOp& op) {
  if (!op.tiny || op.reordered || op.inputs.size() + op.outputs.size() > OpLaunch::kInline) return nullptr;
  for (const auto& output : op.outputs) {
    if (output.absent || output.elements == 0) return nullptr;
  }
  const auto found = choices().find(op.def->type);
  return found == choices().end() ? nullptr : found->second(op);
}

}  // namespace acl_sim
