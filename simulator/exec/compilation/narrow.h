#pragma once
// Up to how many elements of its largest operand one thread computes an element-wise operator: Note [Narrow operators].

#include <cstdint>

namespace [[gnu::visibility("hidden")]] acl_sim {

constexpr int64_t kNarrowElements = 131072;

}  // namespace acl_sim
