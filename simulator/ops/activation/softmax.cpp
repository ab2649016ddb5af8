// Softmax and log-softmax over one axis, with gradients. An output wider than the input (fp16 in, fp32 out) is computed
// in the output's type.

#include "exec/definition/aten.h"
#include "ops/nn_util.h"

#include <ATen/CPUFunctions.h>

namespace acl_sim {
namespace {

int64_t axis_of(OpContext& c, const char* name) {
  const std::vector<int64_t> axes = c.attrs().integers(name, {-1});
  if (axes.size() != 1) {
    refuse("softmax runs over exactly one axis");
  }
  return axes[0];
}

// libtorch's kernels ask for contiguous data where the axis is the last one and take any strides otherwise.
void softmax(OpContext& c) {
  at::Tensor y = c.out(0);
  at::cpu::_softmax_out(y, c.in(0).to(y.scalar_type()), axis_of(c, "axes"), false);
}

void log_softmax(OpContext& c) {
  at::Tensor y = c.out(0);
  at::cpu::_log_softmax_out(y, c.in(0).to(y.scalar_type()), axis_of(c, "axes"), false);
}

// inputs softmax, grad_softmax
void softmax_grad(OpContext& c) {
  const at::Tensor y = c.in(0), dy = c.in(1);
  at::Tensor dx = c.out(0);
  if (dx.scalar_type() == y.scalar_type()) {
    at::cpu::_softmax_backward_data_out(dx, dy, y, axis_of(c, "axes"), y.scalar_type());
  } else {
    dx.copy_(at::_softmax_backward_data(dy, y, axis_of(c, "axes"), y.scalar_type()));
  }
}

// inputs grad, x (the log-softmax)
void log_softmax_grad(OpContext& c) {
  const at::Tensor dy = c.in(0), y = c.in(1);
  at::Tensor dx = c.out(0);
  if (dx.scalar_type() == y.scalar_type()) {
    at::cpu::_log_softmax_backward_data_out(dx, dy, y, axis_of(c, "axis"), y.scalar_type());
  } else {
    dx.copy_(at::_log_softmax_backward_data(dy, y, axis_of(c, "axis"), y.scalar_type()));
  }
}

SIM_OP(SoftmaxV2).inputs(1).dtypes(kFloatTypes).attrs({"axes:ints", "half_to_float:bool"}).run(softmax);
SIM_OP(LogSoftmaxV2).inputs(1).dtypes(kFloatTypes).attrs({"axes:ints"}).run(log_softmax);
SIM_OP(SoftmaxGrad).inputs(2).dtypes(kFloatTypes).attrs({"axes:ints"}).run(softmax_grad);
SIM_OP(LogSoftmaxGrad).inputs(2).dtypes(kFloatTypes).attrs({"axis:ints"}).run(log_softmax_grad);

SIM_ATEN(MaskedSoftmax, "_masked_softmax");
SIM_ATEN(MaskedSoftmaxGrad, "_masked_softmax_backward");

}  // namespace
}  // namespace acl_sim
