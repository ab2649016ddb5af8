#pragma once
// Loops over one tile for the operators of which every result is exactly rounded or chosen from the operands: they need
// no tensors, and give what ATen's kernels give.

#include <acl/acl_base.h>

#include <cstdint>
#include <string_view>

namespace acl_sim::fused {

// How an operand comes: n elements, or one for all of them.
enum class Side : uint8_t { kAll, kOne };

// Operands of kAll are n elements of the loop's dtype; one of kOne is a float.
using Loop = void (*)(void* out, const void* const* in, int64_t n);

// The loop of `type` on up to three operands of `dtype` that writes `result`, each as its side says; null if there is
// none. Of a Select the condition, which comes first, is of bools.
Loop find_loop(std::string_view type, aclDataType dtype, aclDataType result, int operands, Side first, Side second,
               Side third);

}  // namespace acl_sim::fused
