// Margin losses over classes and over sets of labels, with gradients. libtorch computes them in float32 and float64.

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

int64_t reduction(OpContext& c) { return reduction_of(c.attrs().text("reduction", "mean")); }

std::optional<at::Tensor> weight(OpContext& c, size_t i) { return some(widen(optional_in(c, i))); }

// inputs x, target, weight, margin
void multi_margin(OpContext& c) {
  c.out(0).copy_(at::multi_margin_loss(widen(c.in(0)), c.in(1).to(at::kLong), c.attrs().integer("p", 1), c.in_scalar(3),
                                       weight(c, 2), reduction(c)));
}

// inputs x, target, weight, margin, y_grad
void multi_margin_grad(OpContext& c) {
  c.out(0).copy_(at::multi_margin_loss_backward(widen(c.in(4)), widen(c.in(0)), c.in(1).to(at::kLong),
                                                c.attrs().integer("p", 1), c.in_scalar(3), weight(c, 2), reduction(c)));
}

// outputs y, is_target
void multilabel_margin(OpContext& c) {
  auto [loss, is_target] = at::multilabel_margin_loss_forward(widen(c.in(0)), c.in(1).to(at::kLong), reduction(c));
  c.out(0).copy_(loss);
  c.out(1).copy_(is_target);
}

// inputs x, y_grad, target, is_target
void multilabel_margin_grad(OpContext& c) {
  c.out(0).copy_(at::multilabel_margin_loss_backward(widen(c.in(1)), widen(c.in(0)), c.in(2).to(at::kLong),
                                                     reduction(c), widen(c.in(3))));
}

const DtypeSet kF = kFloatTypes, kI = kIntTypes;
const std::vector<std::string> kAttrs = {"p:int", "reduction:str"};

SIM_OP(MultiMarginLoss).inputs(4).dtypes({kF, kI, kF, kF}).attrs(kAttrs).run(multi_margin);
SIM_OP(MultiMarginLossGrad).inputs(5).dtypes({kF, kI, kF, kF, kF}).attrs(kAttrs).run(multi_margin_grad);
SIM_OP(MultilabelMarginLoss).inputs(2).outputs(2).dtypes({kF, kI}).attrs({"reduction:str"}).run(multilabel_margin);
SIM_OP(MultilabelMarginLossGrad).inputs(4).dtypes({kF, kF, kI, kF}).attrs(kAttrs).run(multilabel_margin_grad);

}  // namespace
}  // namespace acl_sim
