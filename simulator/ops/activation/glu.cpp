// The gated linear unit and its gradient.

#include "exec/definition/aten.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

void glu(OpContext& c) {
  at::Tensor y = c.out(0);
  at::glu_out(y, c.in(0), c.attrs().integer("dim", -1));
}

// inputs grad, x
void glu_grad(OpContext& c) {
  at::Tensor dx = c.out(0);
  at::glu_backward_out(dx, c.in(0), c.in(1), c.attrs().integer("dim", -1));
}

SIM_OP(GLU).inputs(1).dtypes(kFloatTypes).attrs({"dim:int"}).run(glu);
SIM_OP(GLUGrad).inputs(2).dtypes(kFloatTypes).attrs({"dim:int"}).run(glu_grad);

SIM_ATEN(GLUJvp, "glu_jvp");
SIM_ATEN(GLUGradJvp, "glu_backward_jvp");

}  // namespace
}  // namespace acl_sim
