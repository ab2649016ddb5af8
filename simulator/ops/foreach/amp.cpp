// The gradient scaler's operator: multiplies a list of gradients by one factor in place and raises a flag where any
// element was infinite or not a number.

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

// Inputs: the gradients, found_inf, inv_scale; outputs: the gradients, found_inf, each in the place of its input.
void unscale(OpContext& c) {
  if (c.num_inputs() < 3 || c.num_outputs() + 1 != c.num_inputs()) {
    refuse("as many outputs as inputs without inv_scale expected");
  }
  const size_t n = c.num_outputs() - 1;
  std::vector<at::Tensor> grads;
  grads.reserve(n);
  for (size_t k = 0; k <= n; ++k) {
    const at::Tensor before = c.in_any(k);
    at::Tensor after = c.out_as(k, before);
    if (before.const_data_ptr() != after.const_data_ptr()) {
      after.copy_(before);
    }
    grads.push_back(after);
  }
  at::Tensor found = grads.back();
  grads.pop_back();
  at::_amp_foreach_non_finite_check_and_unscale_(grads, found, c.in(n + 1));
}

SIM_OP(ForeachNonFiniteCheckAndUnscale).inputs(3, kManyInputs).outputs(2, kManyInputs).dtypes(kFloatTypes).run(unscale);

}  // namespace
}  // namespace acl_sim
