#pragma once
// The device's float status: a sticky register that says whether an operator overflowed.
//
// Note [Float status]
// An operator of the AI Core overflows when an fp16, bf16 or fp32 output holds an infinity or NaN while none of its
// inputs (numbers among the attributes included) does: what was infinite before is passed on, not counted again.
// Looking costs a pass over the outputs, so the device only looks
//  - from the first NPUAllocFloatStatus on, until it is reset,
//  - on streams switched on with aclrtSetStreamOverflowSwitch,
//  - for launches that are dumped with "dump_debug",
//  - in saturation mode, see Note [Saturation] in saturation.h.
// Inputs are only looked at when an output is not finite, or before the operator runs if it may overwrite them.
// Streams of the second kind also count results that underflow, see Note [Underflow] in underflow.h. That count is
// the second word of what aclrtGetOverflowStatus gives; the operators' eight words tell of overflows alone, because a
// loss scaler takes any of them for one.

#include <cstdint>
#include <vector>

#include "core/task.h"
#include "exec/compilation/compile.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class Device;

// Whether an output's infinities, NaNs and underflows count.
inline bool is_watched(const Operand& output) {
  return !output.absent && (output.dtype == ACL_FLOAT || output.dtype == ACL_FLOAT16 || output.dtype == ACL_BF16);
}

class FloatWatch {
 public:
  FloatWatch(const CompiledOp& op, OpLaunch& launch) : op_(op), launch_(launch) {}
  void before();
  // Whether the operator overflowed.
  bool after();

 private:
  enum class Known : uint8_t { Not, Finite, Infinite };
  bool finite(size_t operand);

  const CompiledOp& op_;
  OpLaunch& launch_;
  std::vector<Known> inputs_;  // what was seen before; empty: nothing
};

}  // namespace acl_sim
