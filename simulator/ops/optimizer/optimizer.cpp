// Whole optimizer steps in one pass over memory. CANN has no operator over lists for these, so the types are this
// device's own: FusedSgd and FusedAdam. Operands come list after list (see each operator), then the numbers, then
// optionally the gradient scaler's scale and overflow flag; with a flag that is set the step changes nothing.

#include "exec/definition/aten.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

// List l of tensors that share a layout per position, in the order of their memory; outputs alias the inputs they
// update.
class Lists {
 public:
  Lists(OpContext& c, size_t lists) : c_(c), n_(static_cast<size_t>(c.attrs().integer("tensors", 0))), lists_(lists) {
    if (n_ == 0 || c.num_inputs() < lists * n_) {
      refuse("attribute tensors does not match the number of inputs");
    }
  }
  size_t size() const { return n_; }
  size_t numbers() const { return lists_ * n_; }  // index of the first input behind the lists

  // The whole list l as output list o, holding the inputs' values.
  std::vector<at::Tensor> update(size_t l, size_t o) const {
    std::vector<at::Tensor> list;
    list.reserve(n_);
    for (size_t k = 0; k < n_; ++k) list.push_back(update(l, o, k));
    return list;
  }
  // A list that is only read, of one number each.
  std::vector<at::Tensor> read(size_t l) const {
    std::vector<at::Tensor> list;
    list.reserve(n_);
    for (size_t k = 0; k < n_; ++k) list.push_back(c_.in(l * n_ + k));
    return list;
  }
  std::optional<at::Tensor> flag(size_t i) const {
    const size_t at = numbers() + i;
    return at < c_.num_inputs() && c_.has_input(at) ? std::optional<at::Tensor>(c_.in(at).reshape({1})) : std::nullopt;
  }
  double number(size_t i) const { return c_.in_scalar(numbers() + i).toDouble(); }

 private:
  at::Tensor update(size_t l, size_t o, size_t k) const {
    const size_t in = l * n_ + k, out = o * n_ + k;
    const bool by_rows = rows(k);
    const at::Tensor before = by_rows ? c_.in_channels_last(in) : c_.in(in);
    const at::Tensor after = by_rows ? c_.out_channels_last(out) : c_.out(out);
    if (before.const_data_ptr() != after.const_data_ptr()) {
      after.copy_(before);
    }
    return by_rows ? after.as_strided({after.numel()}, {1}) : after;
  }
  bool rows(size_t k) const {
    for (size_t l = 0; l < lists_; ++l) {
      if (stored_channels_last(c_.in_any(l * n_ + k))) {
        return true;
      }
    }
    return false;
  }

  OpContext& c_;
  size_t n_, lists_;
};

// lists params, grads[, momentum]; numbers weight_decay, momentum, lr, dampening; updates params, grads[, momentum]
void fused_sgd(OpContext& c) {
  const bool with_momentum = c.attrs().boolean("with_momentum", false);
  const Lists lists(c, with_momentum ? 3 : 2);
  const double decay = lists.number(0), momentum = lists.number(1), lr = lists.number(2), dampening = lists.number(3);
  const std::optional<at::Tensor> scale = lists.flag(4), overflow = lists.flag(5);
  std::vector<std::vector<at::Tensor>> own{lists.update(0, 0), lists.update(1, 1), {}};
  if (with_momentum) own[2] = lists.update(2, 2);
  // The CPU's kernel leaves half-precision parameters as they were: those are stepped in fp32.
  const bool half = own[0][0].element_size() == 2;
  std::vector<std::vector<at::Tensor>> used = own;
  if (half) {
    for (auto& list : used) {
      for (at::Tensor& t : list) t = t.to(at::kFloat);
    }
  }
  at::_fused_sgd_(used[0], used[1], used[2], decay, momentum, lr, dampening, c.attrs().boolean("nesterov", false),
                  c.attrs().boolean("maximize", false), c.attrs().boolean("is_first_step", false), scale, overflow);
  if (half) {
    for (size_t l = 0; l < own.size(); ++l) {
      for (size_t k = 0; k < own[l].size(); ++k) own[l][k].copy_(used[l][k]);
    }
  }
}

// lists params, grads, exp_avgs, exp_avg_sqs[, max_exp_avg_sqs], steps; numbers lr, beta1, beta2, weight_decay, eps;
// updates all lists but the steps
void fused_adam(OpContext& c) {
  const bool amsgrad = c.attrs().boolean("amsgrad", false), decoupled = c.attrs().boolean("decoupled", false);
  const size_t steps = amsgrad ? 5 : 4;
  const Lists lists(c, steps + 1);
  const double lr = lists.number(0), beta1 = lists.number(1), beta2 = lists.number(2), decay = lists.number(3);
  const double eps = lists.number(4);
  const bool maximize = c.attrs().boolean("maximize", false);
  const std::optional<at::Tensor> scale = lists.flag(5), overflow = lists.flag(6);
  std::vector<std::vector<at::Tensor>> t(5);
  for (size_t l = 0; l < steps; ++l) t[l] = lists.update(l, l);
  const std::vector<at::Tensor> counts = lists.read(steps);
  if (decoupled) {
    at::_fused_adamw_(t[0], t[1], t[2], t[3], t[4], counts, lr, beta1, beta2, decay, eps, amsgrad, maximize, scale,
                      overflow);
  } else {
    at::_fused_adam_(t[0], t[1], t[2], t[3], t[4], counts, lr, beta1, beta2, decay, eps, amsgrad, maximize, scale,
                     overflow);
  }
}

SIM_OP(FusedSgd)
    .inputs(6, kManyInputs)
    .outputs(2, kManyInputs)
    .dtypes(kFloatTypes)
    .attrs({"tensors:int", "with_momentum:bool", "nesterov:bool", "maximize:bool", "is_first_step:bool"})
    .require({"tensors"})
    .run(fused_sgd);
SIM_OP(FusedAdam)
    .inputs(10, kManyInputs)
    .outputs(4, kManyInputs)
    .dtypes(kFloatTypes)
    .attrs({"tensors:int", "amsgrad:bool", "decoupled:bool", "maximize:bool"})
    .require({"tensors"})
    .run(fused_adam);

SIM_ATEN(FusedAdagrad, "_fused_adagrad_");
SIM_ATEN(FusedAdagradTensorLr, "_fused_adagrad_.tensor_lr");

}  // namespace
}  // namespace acl_sim
