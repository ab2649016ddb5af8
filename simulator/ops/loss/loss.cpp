// Losses and their gradients. libtorch's out= forms of the reducing ones resize their result, which device memory
// cannot, so those results are copied. `reduction` is none, mean or sum; class targets are int32, int64 or uint8.

#include <ATen/CPUFunctions.h>
#include <ATen/core/Reduction.h>

#include "ops/common.h"
#include "ops/nn_util.h"

namespace acl_sim {

int64_t reduction_of(const std::string& name) {
  if (name == "none") {
    return at::Reduction::None;
  }
  if (name == "mean") {
    return at::Reduction::Mean;
  }
  if (name == "sum") {
    return at::Reduction::Sum;
  }
  refuse("reduction must be none, mean or sum, not " + name);
}

namespace {

int64_t reduction(OpContext& c) { return reduction_of(c.attrs().text("reduction", "mean")); }

// Where a loss turns from quadratic to linear; input i, in float64.
double threshold(OpContext& c, size_t i) { return c.has_input(i) ? c.in_scalar(i).toDouble() : 1.0; }

// inputs x, target, weight; outputs y, total_weight
void nll_loss(OpContext& c) {
  const at::Tensor x = c.in(0), target = c.in(1).to(at::kLong);
  const std::optional<at::Tensor> weight = some(optional_in(c, 2));
  const int64_t ignore = c.attrs().integer("ignore_index", -100);
  at::Tensor y = c.out(0), total = c.out(1);
  auto [loss, sum] = x.dim() == 4 ? at::nll_loss2d_forward(x, target, weight, reduction(c), ignore)
                                  : at::nll_loss_forward(x, target, weight, reduction(c), ignore);
  y.copy_(loss.reshape(y.sizes()));
  total.copy_(sum.reshape(total.sizes()));
}

// inputs x, y_grad, target, weight, total_weight
void nll_loss_grad(OpContext& c) {
  const at::Tensor x = c.in(0), dy = c.in(1), target = c.in(2).to(at::kLong), total = c.in(4).reshape({});
  const std::optional<at::Tensor> weight = some(optional_in(c, 3));
  const int64_t ignore = c.attrs().integer("ignore_index", -100);
  at::Tensor dx = c.out(0);
  dx.zero_();  // libtorch's kernels write the targets' entries only
  if (x.dim() == 4) {
    at::cpu::nll_loss2d_backward_out(dx, dy, x, target, weight, reduction(c), ignore, total);
  } else {
    at::cpu::nll_loss_backward_out(dx, reduction(c) == at::Reduction::None ? dy : dy.reshape({}), x, target, weight,
                                   reduction(c), ignore, total);
  }
}

void mse_loss(OpContext& c) { c.out(0).copy_(at::mse_loss(c.in(0), c.in(1), reduction(c))); }

// inputs predict, label, dout
void mse_loss_grad(OpContext& c) {
  at::Tensor dx = c.out(0);
  at::cpu::mse_loss_backward_out(dx, c.in(2), c.in(0), c.in(1), reduction(c));
}

void smooth_l1_loss(OpContext& c) {
  c.out(0).copy_(at::smooth_l1_loss(c.in(0), c.in(1), reduction(c), number(c, "sigma", 2, 1)));
}

void smooth_l1_loss_grad(OpContext& c) {
  at::Tensor dx = c.out(0);
  at::cpu::smooth_l1_loss_backward_out(dx, c.in(2), c.in(0), c.in(1), reduction(c), number(c, "sigma", 3, 1));
}

void huber_loss(OpContext& c) { c.out(0).copy_(at::huber_loss(c.in(0), c.in(1), reduction(c), threshold(c, 2))); }

void huber_loss_grad(OpContext& c) {
  at::Tensor dx = c.out(0);
  at::cpu::huber_loss_backward_out(dx, c.in(2), c.in(0), c.in(1), reduction(c), threshold(c, 3));
}

// inputs x, y, weight
void binary_cross_entropy(OpContext& c) {
  c.out(0).copy_(at::binary_cross_entropy(c.in(0), c.in(1), some(optional_in(c, 2)), reduction(c)));
}

// inputs x, y, grad_output, weight
void binary_cross_entropy_grad(OpContext& c) {
  at::Tensor dx = c.out(0);
  at::cpu::binary_cross_entropy_backward_out(dx, c.in(2), c.in(0), c.in(1), some(optional_in(c, 3)), reduction(c));
}

// inputs predict, target, weight, pos_weight
void bce_with_logits(OpContext& c) {
  at::Tensor loss = c.out(0);
  loss.copy_(at::binary_cross_entropy_with_logits(c.in(0), c.in(1), some(optional_in(c, 2)), some(optional_in(c, 3)),
                                                  reduction(c)));
}

const std::vector<std::string> kReduction = {"reduction:str"};
const std::vector<std::string> kSmooth = {"reduction:str", "sigma:float"};
const std::vector<std::string> kClassAttrs = {"reduction:str", "ignore_index:int"};

SIM_OP(NLLLoss).inputs(2, 3).outputs(2).dtypes({kFloatTypes, kIntTypes, kFloatTypes}).attrs(kClassAttrs).run(nll_loss);
SIM_OP(NLLLossGrad)
    .inputs(5)
    .dtypes({kFloatTypes, kFloatTypes, kIntTypes, kFloatTypes, kFloatTypes})
    .attrs(kClassAttrs)
    .run(nll_loss_grad);
SIM_OP(MseLoss).inputs(2).dtypes(kFloatTypes).attrs(kReduction).run(mse_loss);
SIM_OP(MseLossGrad).inputs(3).dtypes(kFloatTypes).attrs(kReduction).run(mse_loss_grad);
SIM_OP(SmoothL1LossV2).inputs(2).dtypes(kFloatTypes).attrs(kSmooth).run(smooth_l1_loss);
SIM_OP(SmoothL1LossV2Wide).inputs(3).dtypes(kFloatTypes).attrs(kReduction).run(smooth_l1_loss);
SIM_OP(SmoothL1LossGradV2).inputs(3).dtypes(kFloatTypes).attrs(kSmooth).run(smooth_l1_loss_grad);
SIM_OP(SmoothL1LossGradV2Wide).inputs(4).dtypes(kFloatTypes).attrs(kReduction).run(smooth_l1_loss_grad);
SIM_OP(HuberLoss).inputs(2, 3).dtypes(kFloatTypes).attrs(kReduction).run(huber_loss);
SIM_OP(HuberLossGrad).inputs(3, 4).dtypes(kFloatTypes).attrs(kReduction).run(huber_loss_grad);
SIM_OP(BinaryCrossEntropy).inputs(2, 3).dtypes(kFloatTypes).attrs(kReduction).run(binary_cross_entropy);
SIM_OP(BinaryCrossEntropyGrad).inputs(3, 4).dtypes(kFloatTypes).attrs(kReduction).run(binary_cross_entropy_grad);
SIM_OP(SigmoidCrossEntropyWithLogitsV2).inputs(2, 4).dtypes(kFloatTypes).attrs(kReduction).run(bce_with_logits);

}  // namespace
}  // namespace acl_sim
