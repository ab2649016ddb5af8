// The table of operators: filled by static objects in ops/ while the library is loaded and by custom.cpp in aclInit,
// read-only afterwards. Under ASCEND_SIM_OPERATORS=cann nobody finds what only this device has.

#include "exec/definition/registry.h"

#include "exec/definition/op.h"

#include <acl_ir_types.h>

#include "core/config.h"

#include <map>
#include <memory>
#include <stdexcept>

namespace acl_sim {
namespace {

using Table = std::map<std::string, std::unique_ptr<OpDef>, std::less<>>;

Table& table() {
  static auto* value = new Table;
  return *value;
}

bool is_there(std::string_view type) { return !config().documented_only || c10::npu::acl::is_on_a_card(type); }

}  // namespace

OpDef& register_op(const char* type) {
  auto& slot = table()[type];
  if (slot) throw std::logic_error(std::string("operator ") + type + " is defined twice");
  slot = std::make_unique<OpDef>();
  slot->type = type;
  return *slot;
}

bool is_defined(std::string_view type) { return table().contains(type); }

const OpDef* find_op(std::string_view type) {
  const auto found = table().find(type);
  return found == table().end() || !is_there(type) ? nullptr : found->second.get();
}

std::string list_ops() {
  std::string lines;
  const auto number = [&](int n) { lines += '\t' + std::to_string(n >= kManyInputs ? -1 : n); };
  const auto list = [&](const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i) lines += (i ? " " : "") + names[i];
  };
  for (const auto& [type, op] : table()) {
    if (!is_there(type)) continue;
    lines += type;
    for (const int n : {op->min_inputs, op->max_inputs, op->min_outputs, op->max_outputs}) number(n);
    lines += '\t';
    list(op->attr_names);
    lines += '\t';
    list(op->required_attrs);
    lines += '\n';
  }
  return lines;
}

}  // namespace acl_sim
