#pragma once
// Note [Underflow]
// A result underflows when it is not zero but too small for the output's type, so that a zero is stored. The output
// alone does not tell: most zeros are right. Where an fp16, bf16 or fp32 output holds zeros, the operator is therefore
// computed once more, in double precision and beside the device's memory, and a zero counts if that gives a number
// below the smallest that the output's type holds. For fp16 it must come out alike in fp32, because what rounding
// leaves of a difference that is zero (1e-17 of a constant row's normalisation, say) depends on the precision, and is
// no result. In the other types such a rest is far above the smallest number.
// This is no part of a card's register, and costs more than the operator: only streams that are switched on with
// aclrtSetStreamOverflowSwitch are watched. What becomes subnormal loses digits, not its existence, and does not count.

#include <cstdint>

#include "core/task.h"
#include "exec/compilation/compile.h"
#include "exec/watching/kept_inputs.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class Device;

class UnderflowWatch {
 public:
  UnderflowWatch(const CompiledOp& op, OpLaunch& launch, Device& device) : op_(op), launch_(launch), device_(device) {}
  // Copies what the operator is about to overwrite.
  void before();
  // How many results underflowed; 0 also for an operator that cannot be computed in another precision. Kernels run.
  uint32_t after();

 private:
  bool holds_zeros() const;

  const CompiledOp& op_;
  OpLaunch& launch_;
  Device& device_;
  KeptInputs kept_;
};

}  // namespace acl_sim
