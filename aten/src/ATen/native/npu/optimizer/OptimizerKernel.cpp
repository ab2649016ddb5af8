// Fused optimizer steps (torch.optim with fused=True): one command updates every parameter. A parameter and what
// belongs to it lie in one order of memory; the optimizers hand over lists of one dtype and device.

#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/HostScalar.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/native/npu/frame/layout/Strides.h>
#include <ATen/ops/full.h>
#include <NPUNativeFunctions.h>

#include <initializer_list>

namespace at::native::npu {
namespace {

using OptionalTensor = std::optional<Tensor>;

void check(const char* name, std::initializer_list<TensorList> lists) {
  const size_t n = lists.begin()->size();
  for (const TensorList& list : lists) {
    TORCH_CHECK(list.size() == n, name, ": lists of ", n, " and ", list.size(), " tensors");
    for (size_t i = 0; i < n; ++i) {
      const Tensor& t = list[i];
      const bool fits = t.is_contiguous() || (is_dense(t) && t.sizes() == (*lists.begin())[i].sizes());
      TORCH_CHECK(t.is_privateuseone() && fits && (t.numel() == 1 || same_order(t, (*lists.begin())[i])), name,
                  ": expected dense tensors on npu, those of a parameter with the same strides; use foreach=True for "
                  "others");
    }
  }
}

void add_lists(OpCommand& cmd, std::initializer_list<TensorList> lists, bool outputs) {
  for (const TensorList& list : lists) {
    for (const Tensor& t : list) {
      outputs ? cmd.Output(in_memory_order(t)) : cmd.Input(in_memory_order(t));
    }
  }
}

void add_scaler(OpCommand& cmd, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  cmd.InputOptional(grad_scale).InputOptional(found_inf);
}

// A learning rate is a number, or a tensor of one element on either side.
struct Rate {
  double value = 0;
  Tensor tensor;

  // As a tensor of one element of the dtype that steps are computed in.
  Tensor on(const Tensor& param) const {
    const auto options = param.options().dtype(wide_type(param.scalar_type()));
    return tensor.defined() ? tensor.reshape({}).to(options) : at::full({}, value, options);
  }
};

void add_rate(OpCommand& cmd, const Rate& lr) {
  lr.tensor.defined() ? cmd.Input(lr.tensor) : cmd.Input(Scalar(lr.value), kDouble);
}

void sgd(TensorList params, TensorList grads, TensorList momenta, double weight_decay, double momentum, const Rate& lr,
         double dampening, bool nesterov, bool maximize, bool is_first_step, const OptionalTensor& grad_scale,
         const OptionalTensor& found_inf) {
  if (params.empty()) {
    return;
  }
  const bool with_momentum = !momenta.empty();
  check("_fused_sgd_", {params, grads});
  TORCH_CHECK(!with_momentum || momenta.size() == params.size(), "_fused_sgd_: a momentum buffer is missing");
  if (with_momentum) check("_fused_sgd_", {params, momenta});
  DeviceOf guard(params[0]);
  if (lacks("FusedSgd")) {
    return composed::sgd(params, grads, momenta, weight_decay, momentum, lr.on(params[0]), dampening, nesterov,
                         maximize, is_first_step, grad_scale, found_inf);
  }
  OpCommand cmd;
  cmd.Name("FusedSgd");
  add_lists(cmd, {params, grads, momenta}, false);
  cmd.Input(Scalar(weight_decay), kDouble).Input(Scalar(momentum), kDouble);
  add_rate(cmd, lr);
  cmd.Input(Scalar(dampening), kDouble);
  add_scaler(cmd, grad_scale, found_inf);
  add_lists(cmd, {params, grads, momenta}, true);
  cmd.Attr("tensors", static_cast<int64_t>(params.size())).Attr("with_momentum", with_momentum);
  cmd.Attr("nesterov", nesterov).Attr("maximize", maximize).Attr("is_first_step", is_first_step).Run();
}

void adam(const char* name, bool decoupled, TensorList params, TensorList grads, TensorList exp_avgs,
          TensorList exp_avg_sqs, TensorList max_exp_avg_sqs, TensorList given_steps, const Rate& lr, double beta1,
          double beta2, double weight_decay, double eps, bool amsgrad, bool maximize, const OptionalTensor& grad_scale,
          const OptionalTensor& found_inf) {
  if (params.empty()) {
    return;
  }
  check(name, {params, grads, exp_avgs, exp_avg_sqs});
  TORCH_CHECK(given_steps.size() == params.size(), name, ": lists of ", params.size(), " and ", given_steps.size(),
              " tensors");
  // The device counts steps in floating numbers; scripts also do in integers, as the CPU's kernel allows.
  std::vector<Tensor> steps;
  for (const Tensor& step : given_steps) {
    steps.push_back(isFloatingType(step.scalar_type()) ? step : step.to(kFloat));
  }
  const TensorList maxima = amsgrad ? max_exp_avg_sqs : TensorList();
  TORCH_CHECK(!amsgrad || maxima.size() == params.size(), name, ": a buffer of maxima is missing");
  if (amsgrad) check(name, {params, maxima});
  DeviceOf guard(params[0]);
  if (lacks("FusedAdam")) {
    std::vector<Tensor> on_device;
    for (const Tensor& step : steps) on_device.push_back(step.to(params[0].device()));
    return composed::adam(decoupled, params, grads, exp_avgs, exp_avg_sqs, maxima, on_device, lr.on(params[0]), beta1,
                          beta2, weight_decay, eps, maximize, grad_scale, found_inf);
  }
  OpCommand cmd;
  cmd.Name("FusedAdam");
  add_lists(cmd, {params, grads, exp_avgs, exp_avg_sqs, maxima}, false);
  for (const Tensor& step : steps) {
    TORCH_CHECK(step.numel() == 1, name, ": a step must be one number, but has ", step.numel());
    step.is_cpu() ? cmd.Input(read_cpu_scalar(step), kFloat) : cmd.Input(step);
  }
  add_rate(cmd, lr);
  for (const double number : {beta1, beta2, weight_decay, eps}) {
    cmd.Input(Scalar(number), kDouble);
  }
  add_scaler(cmd, grad_scale, found_inf);
  add_lists(cmd, {params, grads, exp_avgs, exp_avg_sqs, maxima}, true);
  cmd.Attr("tensors", static_cast<int64_t>(params.size())).Attr("amsgrad", amsgrad).Attr("decoupled", decoupled);
  cmd.Attr("maximize", maximize).Run();
}

}  // namespace

void fused_sgd_(TensorList self, TensorList grads, TensorList momentum_buffer_list, double weight_decay,
                double momentum, double lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
                const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  sgd(self, grads, momentum_buffer_list, weight_decay, momentum, {lr, {}}, dampening, nesterov, maximize, is_first_step,
      grad_scale, found_inf);
}

void fused_sgd_tensor_lr_(TensorList self, TensorList grads, TensorList momentum_buffer_list, double weight_decay,
                          double momentum, const Tensor& lr, double dampening, bool nesterov, bool maximize,
                          bool is_first_step, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  sgd(self, grads, momentum_buffer_list, weight_decay, momentum, {0, lr}, dampening, nesterov, maximize, is_first_step,
      grad_scale, found_inf);
}

void fused_adam_(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                 TensorList max_exp_avg_sqs, TensorList state_steps, double lr, double beta1, double beta2,
                 double weight_decay, double eps, bool amsgrad, bool maximize, const OptionalTensor& grad_scale,
                 const OptionalTensor& found_inf) {
  adam("_fused_adam_", false, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, {lr, {}}, beta1, beta2,
       weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

void fused_adam_tensor_lr_(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                           TensorList max_exp_avg_sqs, TensorList state_steps, const Tensor& lr, double beta1,
                           double beta2, double weight_decay, double eps, bool amsgrad, bool maximize,
                           const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  adam("_fused_adam_", false, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, {0, lr}, beta1, beta2,
       weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

void fused_adamw_(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                  TensorList max_exp_avg_sqs, TensorList state_steps, double lr, double beta1, double beta2,
                  double weight_decay, double eps, bool amsgrad, bool maximize, const OptionalTensor& grad_scale,
                  const OptionalTensor& found_inf) {
  adam("_fused_adamw_", true, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, {lr, {}}, beta1, beta2,
       weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

void fused_adamw_tensor_lr_(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                            TensorList max_exp_avg_sqs, TensorList state_steps, const Tensor& lr, double beta1,
                            double beta2, double weight_decay, double eps, bool amsgrad, bool maximize,
                            const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  adam("_fused_adamw_", true, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, {0, lr}, beta1, beta2,
       weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

}  // namespace at::native::npu
