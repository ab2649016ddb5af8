// The table of operators: filled by static objects in ops/ while the library is loaded, read-only afterwards.

#include "exec/op.h"

#include <map>
#include <memory>

namespace acl_sim {
namespace {

using Table = std::map<std::string, std::unique_ptr<OpDef>, std::less<>>;

Table& table() {
  static auto* value = new Table;
  return *value;
}

}  // namespace

#define BIT(T) dtype_bit(T)
// Constant-initialised, because operators register themselves before any other initialiser of this file may have run.
constexpr DtypeSet kFloats = BIT(ACL_FLOAT16) | BIT(ACL_FLOAT) | BIT(ACL_DOUBLE) | BIT(ACL_BF16);
constexpr DtypeSet kInts = BIT(ACL_INT8) | BIT(ACL_INT16) | BIT(ACL_INT32) | BIT(ACL_INT64) | BIT(ACL_UINT8) |
                           BIT(ACL_UINT16) | BIT(ACL_UINT32) | BIT(ACL_UINT64);
constexpr DtypeSet kComplex = BIT(ACL_COMPLEX32) | BIT(ACL_COMPLEX64) | BIT(ACL_COMPLEX128);
#undef BIT
constinit const DtypeSet kFloatTypes = kFloats;
constinit const DtypeSet kIntTypes = kInts;
constinit const DtypeSet kRealTypes = kFloats | kInts;
constinit const DtypeSet kNumericTypes = kFloats | kInts | kComplex;
constinit const DtypeSet kAllTypes = kFloats | kInts | kComplex | dtype_bit(ACL_BOOL);

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
