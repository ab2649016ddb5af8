// Adam as operators of the device: var, m and v are inputs and outputs.

#include <cmath>

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

double number(OpContext& c, size_t i) { return c.in_scalar(i).toDouble(); }

void give(OpContext& c, const Tensor& var, const Tensor& m, const Tensor& v) {
  c.out(0).copy_(var);
  c.out(1).copy_(m);
  c.out(2).copy_(v);
}

// var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad
void apply_adam(OpContext& c) {
  const Tensor var = widen(c.in(0)), grad = widen(c.in(9));
  const double beta1 = number(c, 6), beta2 = number(c, 7);
  const double rate = number(c, 5) * std::sqrt(1 - number(c, 4)) / (1 - number(c, 3));
  const Tensor m = widen(c.in(1)) * beta1 + grad * (1 - beta1), v = widen(c.in(2)) * beta2 + grad * grad * (1 - beta2);
  const Tensor step = c.attrs().boolean("use_nesterov", false) ? m * beta1 + grad * (1 - beta1) : m;
  give(c, var - step / (v.sqrt() + number(c, 8)) * rate, m, v);
}
SIM_OP(ApplyAdamD)
    .inputs(10)
    .outputs(3)
    .dtypes(kFloatTypes)
    .attrs({"use_locking:bool", "use_nesterov:bool"})
    .run(apply_adam);

// var, m, v, lr, beta1, beta2, epsilon, grad, max_grad_norm, global_grad_norm, weight_decay, step_size
void apply_adam_v2(OpContext& c) {
  const Tensor var = widen(c.in(0));
  const double lr = number(c, 3), beta1 = number(c, 4), beta2 = number(c, 5), decay = number(c, 10);
  const double most = number(c, 8), norm = number(c, 9);
  const Tensor grad = widen(c.in(7)) * (most > 0 ? std::min(1.0, most / (norm + 1e-6)) : 1.0);
  const Tensor m = widen(c.in(1)) * beta1 + grad * (1 - beta1), v = widen(c.in(2)) * beta2 + grad * grad * (1 - beta2);
  const Tensor direction = m / (v.sqrt() + number(c, 6));
  if (c.attrs().text("adam_mode", "adam") == "adam") {
    give(c, var - (direction + var * decay) * lr, m, v);
  } else {
    if (c.num_inputs() < 12 || !c.has_input(11)) refuse("ApplyAdamV2: mbert_adam needs step_size");
    const Tensor moved = var - direction * number(c, 11);
    give(c, moved - moved * (lr * decay), m, v);
  }
}
SIM_OP(ApplyAdamV2).inputs(11, 12).outputs(3).dtypes(kFloatTypes).attrs({"adam_mode:str"}).run(apply_adam_v2);

}  // namespace
}  // namespace acl_sim
