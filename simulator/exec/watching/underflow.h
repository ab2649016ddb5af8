#pragma once
// Note [Underflow]
// A result underflows when the exact number is not zero but too small for the output's dtype, so that 0 is stored. The
// output does not show it, since most zeros are right. So where an fp16, bf16 or fp32 output holds zeros, the operator
// is computed again in double precision, outside of the device's memory. A zero counts if the second result is not zero
// but below the smallest number of the output's dtype. For fp16 a third computation in fp32 must agree: a difference
// that should be 0 may leave a rounding error (1e-17 in the normalisation of a constant row), which depends on the
// precision. In the other dtypes such an error is far above the smallest number. A card has no such register, and
// watching costs more than the operator: only streams that are switched on with aclrtSetStreamOverflowSwitch are
// watched. A subnormal result has lost digits but is not zero, and does not count.

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
