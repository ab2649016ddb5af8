// LAMB over flat tensors, the step of torch.npu.optim.NpuFusedLamb.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <NPUNativeFunctions.h>

#include <algorithm>
#include <vector>

namespace at::native::npu {
namespace {

// The norm of a parameter counts for no more, as in the paper's code.
constexpr double kLargestNorm = 10.0;

std::vector<Tensor> parts_of(const Tensor& flat, IntArrayRef bounds) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i + 1 < bounds.size(); i += 2) {
    parts.push_back(flat.narrow(0, bounds[i], bounds[i + 1] - bounds[i]));
  }
  return parts;
}

void composed_lamb(const Tensor& param, const Tensor& grad, const Tensor& mean, const Tensor& mean_square,
                   IntArrayRef bounds, double lr, double beta1, double beta2, double eps, double weight_decay,
                   bool adam) {
  mean.lerp_(grad, 1 - beta1);
  mean_square.mul_(beta2).addcmul_(grad, grad, 1 - beta2);
  const Tensor update = mean / mean_square.sqrt().add_(eps);
  if (weight_decay != 0) {
    update.add_(param, weight_decay);
  }
  if (!adam) {
    const std::vector<Tensor> updates = parts_of(update, bounds);
    const Tensor weights = at::stack(at::_foreach_norm(parts_of(param, bounds), 2)).clamp_max_(kLargestNorm);
    const Tensor sizes = at::stack(at::_foreach_norm(updates, 2));
    const Tensor ratios = at::where(weights.gt(0).logical_and_(sizes.gt(0)), weights / sizes, at::ones_like(sizes));
    at::_foreach_mul_(updates, ratios.unbind());
  }
  param.add_(update, -lr);
}

}  // namespace

Tensor& _npu_lamb_step_(Tensor& param, const Tensor& grad, Tensor& exp_avg, Tensor& exp_avg_sq, IntArrayRef bounds,
                        double lr, double beta1, double beta2, double eps, double weight_decay, bool adam) {
  for (const Tensor& t : {param, grad, exp_avg, exp_avg_sq}) {
    TORCH_CHECK(t.dim() == 1 && t.sizes() == param.sizes() && t.is_contiguous() &&
                    t.scalar_type() == param.scalar_type() && t.device() == param.device() && t.is_floating_point(),
                "_npu_lamb_step_: expected flat tensors of one size, dtype and device, got ", t.toString(),
                " of shape ", t.sizes(), " beside ", param.toString(), " of shape ", param.sizes());
  }
  TORCH_CHECK(!bounds.empty() && bounds.size() % 2 == 0 && bounds.front() >= 0 && bounds.back() <= param.numel() &&
                  std::is_sorted(bounds.begin(), bounds.end()),
              "_npu_lamb_step_: bounds are the begin and end of each parameter and rise from 0 to at most ",
              param.numel(), ", got ", bounds);
  if (param.is_meta()) {
    return param;
  }
  DeviceOf guard(param);
  if (param.scalar_type() != kFloat || lacks("FusedLamb")) {
    composed_lamb(param, grad, exp_avg, exp_avg_sq, bounds, lr, beta1, beta2, eps, weight_decay, adam);
    return param;
  }
  OpCommand cmd;
  cmd.Name("FusedLamb").Input(param).Input(grad).Input(exp_avg).Input(exp_avg_sq).Input(bounds);
  for (const double number : {lr, beta1, beta2, eps, weight_decay}) {
    cmd.Input(Scalar(number), kDouble);
  }
  cmd.Output(param).Output(exp_avg).Output(exp_avg_sq).Attr("adam", adam).Run();
  return param;
}

}  // namespace at::native::npu
