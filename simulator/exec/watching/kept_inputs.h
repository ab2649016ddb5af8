#pragma once
// Copies of the inputs that an operator is about to overwrite, for those who look at its operands afterwards.

#include <vector>

#include "core/executor.h"
#include "exec/running/scratch.h"
#include "exec/watching/overlap.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class KeptInputs {
 public:
  KeptInputs() = default;
  ~KeptInputs() {
    for (void* copy : copies_) give_scratch(copy);
  }
  KeptInputs(const KeptInputs&) = delete;
  KeptInputs& operator=(const KeptInputs&) = delete;

  void keep(const CompiledOp& op, OpLaunch& launch, Device& device) {
    copies_.resize(op.inputs.size(), nullptr);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!may_be_overwritten(op, launch, i)) continue;
      copies_[i] = take_scratch(op.inputs[i].bytes);
      copy_from_device(device, copies_[i], launch.operand(i), op.inputs[i].bytes);
    }
  }
  // In the host's order of elements; nullptr if that input was not copied.
  const void* of(size_t input) const { return input < copies_.size() ? copies_[input] : nullptr; }

 private:
  std::vector<void*> copies_;  // by input
};

}  // namespace acl_sim
