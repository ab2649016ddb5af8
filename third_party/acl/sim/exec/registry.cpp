// The table of operators: filled by static objects in ops/ while the library is loaded and by custom.cpp in aclInit,
// read-only afterwards.

#include "exec/op.h"

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

}  // namespace

OpDef& register_op(const char* type) {
  auto& slot = table()[type];
  if (slot) throw std::logic_error(std::string("operator ") + type + " is defined twice");
  slot = std::make_unique<OpDef>();
  slot->type = type;
  return *slot;
}

const OpDef* find_op(std::string_view type) {
  const auto found = table().find(type);
  return found == table().end() ? nullptr : found->second.get();
}

}  // namespace acl_sim
