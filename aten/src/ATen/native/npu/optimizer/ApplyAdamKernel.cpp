// Steps of Adam as one IR operator each: var, m and v are changed in place.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <NPUCustomFunctions.h>

#include <tuple>

namespace at::native::npu {
namespace {

void check_state(const char* name, const Tensor& var, const Tensor& m, const Tensor& v, const Tensor& grad) {
  check_dtype(var.scalar_type(), kDtypeFloat, name);
  TORCH_CHECK(var.sizes() == m.sizes() && var.sizes() == v.sizes() && var.sizes() == grad.sizes(), name,
              ": var, m, v and grad of one shape expected, got ", var.sizes(), ", ", m.sizes(), ", ", v.sizes(),
              " and ", grad.sizes());
}

}  // namespace

std::tuple<Tensor&, Tensor&, Tensor&> npu_apply_adam_out(const Scalar& beta1_power, const Scalar& beta2_power,
                                                         const Scalar& lr, const Scalar& beta1, const Scalar& beta2,
                                                         const Scalar& epsilon, const Tensor& grad,
                                                         std::optional<bool> use_locking,
                                                         std::optional<bool> use_nesterov, Tensor& var, Tensor& m,
                                                         Tensor& v) {
  DeviceOf guard(var);
  check_state("npu_apply_adam", var, m, v, grad);
  if (!var.is_meta() && var.numel() > 0) {
    OpCommand cmd;
    cmd.Name("ApplyAdamD").Input(var).Input(m).Input(v).Input(beta1_power, kFloat).Input(beta2_power, kFloat);
    cmd.Input(lr, kFloat).Input(beta1, kFloat).Input(beta2, kFloat).Input(epsilon, kFloat).Input(grad);
    cmd.Output(var).Output(m).Output(v).Attr("use_locking", use_locking.value_or(false));
    cmd.Attr("use_nesterov", use_nesterov.value_or(false)).Run();
  }
  return std::forward_as_tuple(var, m, v);
}

std::tuple<Tensor, Tensor, Tensor> npu_apply_adam_old(Tensor& var, Tensor& m, Tensor& v, const Scalar& beta1_power,
                                                      const Scalar& beta2_power, const Scalar& lr, const Scalar& beta1,
                                                      const Scalar& beta2, const Scalar& epsilon, const Tensor& grad,
                                                      std::optional<bool> use_locking,
                                                      std::optional<bool> use_nesterov) {
  npu_apply_adam_out(beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad, use_locking, use_nesterov, var, m, v);
  return {var, m, v};
}

std::tuple<Tensor, Tensor, Tensor> npu_apply_adam(const Scalar& /*beta1_power*/, const Scalar& /*beta2_power*/,
                                                  const Scalar& /*lr*/, const Scalar& /*beta1*/,
                                                  const Scalar& /*beta2*/, const Scalar& /*epsilon*/,
                                                  const Tensor& /*grad*/, std::optional<bool> /*use_locking*/,
                                                  std::optional<bool> /*use_nesterov*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_apply_adam changes its state in place: pass it as out=(var, m, v)");
}

std::tuple<Tensor&, Tensor&, Tensor&> npu_bert_apply_adam_out(
    const Scalar& lr, const Scalar& beta1, const Scalar& beta2, const Scalar& epsilon, const Tensor& grad,
    const Scalar& max_grad_norm, const Scalar& global_grad_norm, const Scalar& weight_decay,
    const std::optional<Scalar>& step_size, int64_t adam_mode, Tensor& var, Tensor& m, Tensor& v) {
  DeviceOf guard(var);
  check_state("npu_bert_apply_adam", var, m, v, grad);
  TORCH_CHECK(adam_mode == 0 || adam_mode == 1, "npu_bert_apply_adam: adam_mode is 0 (adam) or 1 (mbert_adam), got ",
              adam_mode);
  TORCH_CHECK(adam_mode == 0 || step_size.has_value(), "npu_bert_apply_adam: adam_mode=1 needs step_size");
  if (!var.is_meta() && var.numel() > 0) {
    OpCommand cmd;
    cmd.Name("ApplyAdamV2").Input(var).Input(m).Input(v).Input(lr, kFloat).Input(beta1, kFloat).Input(beta2, kFloat);
    cmd.Input(epsilon, kFloat).Input(grad).Input(max_grad_norm, kFloat).Input(global_grad_norm, kFloat);
    cmd.Input(weight_decay, kFloat);
    if (step_size.has_value()) cmd.Input(*step_size, kFloat);
    cmd.Output(var).Output(m).Output(v).Attr("adam_mode", adam_mode == 0 ? "adam" : "mbert_adam").Run();
  }
  return std::forward_as_tuple(var, m, v);
}

std::tuple<Tensor, Tensor, Tensor> npu_bert_apply_adam_old(Tensor& var, Tensor& m, Tensor& v, const Scalar& lr,
                                                           const Scalar& beta1, const Scalar& beta2,
                                                           const Scalar& epsilon, const Tensor& grad,
                                                           const Scalar& max_grad_norm, const Scalar& global_grad_norm,
                                                           const Scalar& weight_decay,
                                                           const std::optional<Scalar>& step_size, int64_t adam_mode) {
  npu_bert_apply_adam_out(lr, beta1, beta2, epsilon, grad, max_grad_norm, global_grad_norm, weight_decay, step_size,
                          adam_mode, var, m, v);
  return {var, m, v};
}

std::tuple<Tensor, Tensor, Tensor> npu_bert_apply_adam(
    const Scalar& /*lr*/, const Scalar& /*beta1*/, const Scalar& /*beta2*/, const Scalar& /*epsilon*/,
    const Tensor& /*grad*/, const Scalar& /*max_grad_norm*/, const Scalar& /*global_grad_norm*/,
    const Scalar& /*weight_decay*/, const std::optional<Scalar>& /*step_size*/, int64_t /*adam_mode*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_bert_apply_adam changes its state in place: pass it as out=(var, m, v)");
}

}  // namespace at::native::npu
