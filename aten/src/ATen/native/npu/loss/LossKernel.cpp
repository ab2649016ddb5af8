// Losses that are not one entry of the operator table: those whose result is either element-wise or a single value.

#include <ATen/ExpandUtils.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/MetaRules.h>
#include <ATen/native/npu/frame/inference/Numbers.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/native/npu/loss/LossArgs.h>
#include <ATen/ops/result_type.h>
#include <NPUNativeFunctions.h>

#include <functional>
#include <limits>
#include <tuple>

namespace at::native::npu {
namespace {

// Two operands of a loss in one shape and dtype.
struct Pair {
  Tensor input, target;
  Pair(const Tensor& a, const Tensor& b) {
    TORCH_CHECK(a.device() == b.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", a.device(), " and ",
                b.device(), "!");
    const ScalarType type = at::result_type(a, b);
    const DimVector sizes = infer_size_dimvector(a.sizes(), b.sizes());
    input = cast(a, type).expand(sizes);
    target = cast(b, type).expand(sizes);
  }
};

using AddAttrs = std::function<void(OpCommand&)>;

// Of each element as the operands lie.
Tensor loss_result(const Pair& p, int64_t reduction) {
  if (reduction != Reduction::None) return empty_npu(IntArrayRef{}, p.input.scalar_type(), p.input.device());
  Functional<meta_rules::binary, 1> op;
  op.meta(p.input, p.target);
  return op.take();
}

OpCommand& start_loss(OpCommand& cmd, const char* ir, int64_t reduction) {
  cmd.Name(ir);
  return reduction == Reduction::None ? cmd.Elementwise() : cmd;
}

void issue_loss(const char* ir, const Pair& p, int64_t reduction, const Tensor& result, const AddAttrs& attrs) {
  if (p.input.numel() == 0) {
    // The mean of nothing is nan, as upstream has it.
    result.fill_(reduction == Reduction::Mean ? std::numeric_limits<double>::quiet_NaN() : 0.0);
    return;
  }
  OpCommand cmd;
  start_loss(cmd, ir, reduction).Input(p.input).Input(p.target).Output(result);
  cmd.Attr("reduction", reduction_name(reduction));
  attrs(cmd);
  cmd.Run();
}

// The gradient has the broadcast shape; autograd sums it to the operand's.
void issue_grad(const char* ir, const Tensor& grad_output, const Pair& p, int64_t reduction, const Tensor& result,
                const AddAttrs& attrs) {
  if (p.input.numel() == 0) {
    return;
  }
  OpCommand cmd;
  cmd.Name(ir).Input(p.input).Input(p.target).Input(grad_output).Output(result);
  cmd.Attr("reduction", reduction_name(reduction));
  attrs(cmd);
  cmd.Run();
}

// The dtype that counts is the one that both are computed in.
Tensor elementwise_loss(const char* name, const char* ir, const Tensor& self, const Tensor& target, int64_t reduction,
                        const AddAttrs& attrs) {
  DeviceOf guard(self);
  const Pair p(self, target);
  check_dtype(p.input.scalar_type(), kDtypeFloat, name);
  const Tensor result = loss_result(p, reduction);
  issue_loss(ir, p, reduction, result, attrs);
  return result;
}

Tensor& elementwise_loss_out(const char* name, const char* ir, const Tensor& self, const Tensor& target,
                             int64_t reduction, Tensor& out, const AddAttrs& attrs) {
  const Tensor result = elementwise_loss(name, ir, self, target, reduction, attrs);
  out.resize_(result.sizes());
  return out.copy_(result);
}

Tensor& elementwise_grad_out(const char* ir, const Tensor& grad_output, const Tensor& self, const Tensor& target,
                             int64_t reduction, Tensor& grad_input, const AddAttrs& attrs) {
  DeviceOf guard(self);
  const Pair p(self, target);
  grad_input.resize_(p.input.sizes());
  issue_grad(ir, grad_output, p, reduction, grad_input, attrs);
  return grad_input;
}

// The dtypes of a loss of classes.
void check_classes(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight) {
  const ScalarType type = target.scalar_type();
  TORCH_CHECK(isIntegralType(type, false) && !isBarebonesUnsignedType(type),
              "nll_loss: expected target dtype to be Long or Byte (or Int), but got ", type);
  check_one_dtype("nll_loss", self, weight);
}

void check_class_operands(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight) {
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "input tensor should be 1D or 2D");
  TORCH_CHECK(target.dim() <= 1, "0D or 1D target tensor expected, multi-target not supported");
  TORCH_CHECK(self.dim() == 1 || target.dim() == 1 || self.size(0) == 1, "size mismatch (got input: ", self.sizes(),
              ", target: ", target.sizes(), ")");
  TORCH_CHECK(self.dim() == 1 || self.size(0) == target.numel(), "size mismatch (got input: ", self.sizes(),
              ", target: ", target.sizes(), ")");
  check_classes(self, target, weight);
  TORCH_CHECK_VALUE(self.dim() == 2 || target.dim() == 0 || target.size(0) == 1,
                    "For 1D input, 1D target must have size 1, but got target size: ", target.numel());
  TORCH_CHECK(!weight.has_value() || !weight->defined() || (weight->dim() == 1 && weight->numel() == self.size(-1)),
              "weight tensor should be defined either for all ", self.size(-1), " classes or no classes");
}

void check_probabilities(const Tensor& self, const Tensor& target) {
  TORCH_CHECK(target.scalar_type() == self.scalar_type(), "binary_cross_entropy: Found dtype ", target.scalar_type(),
              " but expected ", self.scalar_type());
}

// Weights of any dtype are taken in that of the data.
void add_weight(OpCommand& cmd, const std::optional<Tensor>& weight, const Pair& p) {
  if (weight.has_value() && weight->defined()) {
    cmd.Input(cast(*weight, p.input.scalar_type()).expand(p.input.sizes()));
  }
}

// The gradient's operator has weights even where none are given.
Tensor class_weights(const Tensor& self, const std::optional<Tensor>& weight) {
  if (weight.has_value() && weight->defined()) return *weight;
  return at::ones({self.size(self.dim() == 1 ? 0 : 1)}, self.options());
}

const AddAttrs kNone = [](OpCommand&) {};

// As an input behind the others, since an attribute would be fp32.
AddAttrs number(double value) {
  return [value](OpCommand& cmd) { cmd.Input(Scalar(value), kDouble); };
}

// SmoothL1LossV2's threshold is an attribute; where that does not hold it, an input of the operator's wide twin.
struct Sigma {
  Sigma(const Tensor& self, const Tensor& target, double beta)
      : wide(!attrs_hold(at::result_type(self, target), {beta})) {
    TORCH_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
    add = wide ? number(beta) : [beta](OpCommand& cmd) { cmd.Attr("sigma", beta); };
  }
  const char* loss() const { return wide ? "SmoothL1LossV2Wide" : "SmoothL1LossV2"; }
  const char* grad() const { return wide ? "SmoothL1LossGradV2Wide" : "SmoothL1LossGradV2"; }

  bool wide;
  AddAttrs add;
};

}  // namespace

Tensor mse_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  return elementwise_loss("mse_loss", "MseLoss", self, target, reduction, kNone);
}
Tensor& mse_loss_out(const Tensor& self, const Tensor& target, int64_t reduction, Tensor& out) {
  return elementwise_loss_out("mse_loss", "MseLoss", self, target, reduction, out, kNone);
}
Tensor& mse_loss_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t reduction,
                              Tensor& grad_input) {
  return elementwise_grad_out("MseLossGrad", grad_output, self, target, reduction, grad_input, kNone);
}
Tensor mse_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t reduction) {
  Tensor dx = empty_as(self);
  return mse_loss_backward_out(grad_output, self, target, reduction, dx);
}

Tensor smooth_l1_loss(const Tensor& self, const Tensor& target, int64_t reduction, double beta) {
  const Sigma sigma(self, target, beta);
  if (lacks(sigma.loss())) return composed::smooth_l1_loss(self, target, reduction, beta);
  return elementwise_loss("smooth_l1_loss", sigma.loss(), self, target, reduction, sigma.add);
}
Tensor& smooth_l1_loss_out(const Tensor& self, const Tensor& target, int64_t reduction, double beta, Tensor& out) {
  const Sigma sigma(self, target, beta);
  if (lacks(sigma.loss())) return give(composed::smooth_l1_loss(self, target, reduction, beta), out);
  return elementwise_loss_out("smooth_l1_loss", sigma.loss(), self, target, reduction, out, sigma.add);
}
Tensor& smooth_l1_loss_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                                    int64_t reduction, double beta, Tensor& grad_input) {
  const Sigma sigma(self, target, beta);
  if (lacks(sigma.grad())) {
    return give(composed::smooth_l1_loss_backward(grad_output, self, target, reduction, beta), grad_input);
  }
  return elementwise_grad_out(sigma.grad(), grad_output, self, target, reduction, grad_input, sigma.add);
}

Tensor huber_loss(const Tensor& self, const Tensor& target, int64_t reduction, double delta) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
  const ScalarType type = at::result_type(self, target);
  TORCH_CHECK(canCast(type, self.scalar_type()), "result type ", type, " can't be cast to the desired output type ",
              self.scalar_type());
  if (lacks("HuberLoss")) return composed::huber_loss(self, target, reduction, delta);
  return cast(elementwise_loss("huber_loss", "HuberLoss", self, target, reduction, number(delta)), self.scalar_type());
}
Tensor& huber_loss_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t reduction,
                                double delta, Tensor& grad_input) {
  for (const Tensor* t : {&target, &grad_output}) {
    TORCH_CHECK(t->scalar_type() == self.scalar_type(), "Found dtype ", t->scalar_type(), " but expected ",
                self.scalar_type());
  }
  if (lacks("HuberLossGrad")) {
    return give(composed::huber_loss_backward(grad_output, self, target, reduction, delta), grad_input);
  }
  return elementwise_grad_out("HuberLossGrad", grad_output, self, target, reduction, grad_input, number(delta));
}

Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight,
                            int64_t reduction) {
  DeviceOf guard(self);
  check_probabilities(self, target);
  const Pair p(self, target);
  const Tensor result = loss_result(p, reduction);
  OpCommand cmd;
  start_loss(cmd, "BinaryCrossEntropy", reduction).Input(p.input).Input(p.target);
  add_weight(cmd, weight, p);
  cmd.Output(result).Attr("reduction", reduction_name(reduction)).Run();
  return result;
}

Tensor binary_cross_entropy_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                                     const std::optional<Tensor>& weight, int64_t reduction) {
  DeviceOf guard(self);
  check_probabilities(self, target);
  const Pair p(self, target);
  const Tensor dx = empty_preserved(p.input, p.input.scalar_type());
  OpCommand cmd;
  cmd.Name("BinaryCrossEntropyGrad").Elementwise().Input(p.input).Input(p.target);
  cmd.Input(grad_output.expand(p.input.sizes()));
  add_weight(cmd, weight, p);
  cmd.Output(dx).Attr("reduction", reduction_name(reduction)).Run();
  return dx;
}

// Upstream's meta function would refuse int32 targets, which the device takes.
std::tuple<Tensor, Tensor> nll_loss(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight,
                                    int64_t reduction, int64_t ignore_index) {
  DeviceOf guard(self);
  check_class_operands(self, target, weight);
  const bool per_sample = reduction == Reduction::None && self.dim() == 2;
  const Tensor loss = per_sample ? empty_npu({self.size(0)}, self.scalar_type(), self.device())
                                 : empty_npu(IntArrayRef{}, self.scalar_type(), self.device());
  const Tensor total = empty_npu(IntArrayRef{}, self.scalar_type(), self.device());
  if (target.numel() == 0) {
    loss.fill_(reduction == Reduction::Mean ? std::numeric_limits<double>::quiet_NaN() : 0.0);
    total.zero_();
    return {loss, total};
  }
  OpCommand cmd;
  cmd.Name("NLLLoss").Input(self).Input(target).InputOptional(weight).Output(loss).Output(total);
  cmd.Attr("reduction", reduction_name(reduction)).Attr("ignore_index", ignore_index).Run();
  return {loss, total};
}

std::tuple<Tensor&, Tensor&> nll_loss_out(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight,
                                          int64_t reduction, int64_t ignore_index, Tensor& output,
                                          Tensor& total_weight) {
  const auto [loss, total] = npu::nll_loss(self, target, weight, reduction, ignore_index);
  output.resize_(loss.sizes());
  total_weight.resize_(total.sizes());
  output.copy_(loss);
  total_weight.copy_(total);
  return std::forward_as_tuple(output, total_weight);
}

Tensor& nll_loss_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                              const std::optional<Tensor>& weight, int64_t reduction, int64_t ignore_index,
                              const Tensor& total_weight, Tensor& grad_input) {
  DeviceOf guard(self);
  check_class_operands(self, target, weight);
  grad_input.resize_(self.sizes());
  if (target.numel() > 0) {
    OpCommand cmd;
    cmd.Name("NLLLossGrad").Input(self).Input(grad_output).Input(target).Input(class_weights(self, weight));
    cmd.Input(total_weight);
    cmd.Output(grad_input).Attr("reduction", reduction_name(reduction)).Attr("ignore_index", ignore_index).Run();
  }
  return grad_input;
}

Tensor nll_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                         const std::optional<Tensor>& weight, int64_t reduction, int64_t ignore_index,
                         const Tensor& total_weight) {
  Tensor dx = empty_as(self);
  return npu::nll_loss_backward_out(grad_output, self, target, weight, reduction, ignore_index, total_weight, dx);
}

std::tuple<Tensor, Tensor> nll_loss2d(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight,
                                      int64_t reduction, int64_t ignore_index) {
  DeviceOf guard(self);
  TORCH_CHECK(self.dim() == 4 && target.dim() == 3,
              "only batches of spatial inputs are supported (4D tensors), but got inputs of dimension ", self.dim(),
              " and targets of dimension ", target.dim());
  TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) && self.size(3) == target.size(2),
              "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes());
  check_classes(self, target, weight);
  TORCH_CHECK(!weight.has_value() || !weight->defined() || weight->numel() == self.size(1),
              "weight tensor should be defined either for all ", self.size(1), " classes or no classes");
  const Tensor loss = reduction == Reduction::None ? empty_npu(target.sizes(), self.scalar_type(), self.device())
                                                   : empty_npu(IntArrayRef{}, self.scalar_type(), self.device());
  const Tensor total = empty_npu(IntArrayRef{}, self.scalar_type(), self.device());
  OpCommand cmd;
  cmd.Name("NLLLoss").Input(self).Input(target).InputOptional(weight).Output(loss).Output(total);
  cmd.Attr("reduction", reduction_name(reduction)).Attr("ignore_index", ignore_index).Run();
  return {loss, total};
}

Tensor nll_loss2d_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                           const std::optional<Tensor>& weight, int64_t reduction, int64_t ignore_index,
                           const Tensor& total_weight) {
  DeviceOf guard(self);
  const Tensor dx = empty_as(self);
  OpCommand cmd;
  cmd.Name("NLLLossGrad").Input(self).Input(grad_output).Input(target).Input(class_weights(self, weight));
  cmd.Input(total_weight);
  cmd.Output(dx).Attr("reduction", reduction_name(reduction)).Attr("ignore_index", ignore_index).Run();
  return dx;
}

}  // namespace at::native::npu
