// Sequences of numbers.

#include "exec/definition/aten.h"

namespace acl_sim {
namespace {

SIM_ATEN(RangeInclusive, "range.out");

}  // namespace
}  // namespace acl_sim
