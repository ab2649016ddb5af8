#pragma once
// Note [Underflow]
// A result underflows when the exact number is not zero, but so small that the output's dtype can only store 0. The
// output alone does not tell, because most zeros in it are right. So an operator whose fp16, bf16 or fp32 output holds
// zeros is computed again in double precision, in memory of the host. A zero counts as an underflow if the second
// result is not zero there, but smaller than the smallest number of the output's dtype. In fp16 that is not enough. A
// difference that should be 0 may leave a rounding error instead, such as 1e-17 in the normalisation of a constant row.
// The error changes with the precision, so fp16 results are computed in fp32 as well, and a zero counts only if that
// agrees. The smallest numbers of bf16 and fp32 are far below such errors. A subnormal result has lost digits but is
// not zero, and does not count. A card has no such counter. It costs more than the operator itself, so only streams
// that are switched on with aclrtSetStreamOverflowSwitch are watched.

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
