// What torch.amp.GradScaler asks a device for. Nothing is read back: whether gradients overflowed stays on the device
// until the scaler itself asks.

#include <ATen/TensorOperators.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/layout/Strides.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <NPUCustomFunctions.h>
#include <NPUNativeFunctions.h>
#include <c10/npu/NPUOptions.h>

#include <limits>
#include <vector>

namespace at::native::npu {
namespace {

void check_single(const char* op, const char* name, const Tensor& t, ScalarType dtype) {
  TORCH_CHECK(t.is_privateuseone(), op, ": expected ", name, " on npu, got ", t.device());
  TORCH_CHECK(t.numel() == 1, op, ": ", name, " must be a 1-element tensor, got shape ", t.sizes());
  TORCH_CHECK(t.scalar_type() == dtype, op, ": ", name, " must be ", dtype, ", got ", t.scalar_type());
}

// In saturation mode no gradient is infinite: the device's status tells, from one update of the scale to the next.
void add_float_status(Tensor& found_inf) {
  if (!c10::npu::options().saturates) {
    return;
  }
  const Tensor status = npu_get_float_status(npu_alloc_float_status(found_inf), 0);
  const Tensor overflow = status.narrow(0, 0, 1).ne(0).to(kFloat).reshape(found_inf.sizes());
  found_inf.copy_(at::maximum(found_inf, overflow));
}

void unscale(TensorList grads, const Tensor& found_inf, const Tensor& inv_scale) {
  if (lacks("ForeachNonFiniteCheckAndUnscale")) {
    for (const Tensor& grad : grads) {
      const Tensor overflow = at::isfinite(grad).all().logical_not().to(kFloat);
      found_inf.copy_(at::maximum(found_inf, overflow.reshape(found_inf.sizes())));
      grad.mul_(inv_scale.reshape({}).to(grad.scalar_type()));
    }
    return;
  }
  OpCommand cmd;
  cmd.Name("ForeachNonFiniteCheckAndUnscale");
  for (const Tensor& grad : grads) {
    cmd.Input(grad);
  }
  cmd.InputAs(found_inf, {1}).InputAs(inv_scale, {1});
  for (const Tensor& grad : grads) {
    cmd.Output(grad);
  }
  cmd.OutputAs(found_inf, {1}).Run();
}

// Whether one command takes the gradients to fp32: pairs of one shape and one order of memory.
bool pairs_up(TensorList targets, TensorList grads) {
  for (size_t i = 0; i < grads.size(); ++i) {
    const Tensor &to = targets[i], &from = grads[i];
    const bool fits = to.scalar_type() == kFloat && from.scalar_type() == grads[0].scalar_type() &&
                      (from.scalar_type() == kFloat || isReducedFloatingType(from.scalar_type())) &&
                      from.device() == to.device() && from.numel() > 0 && is_dense(from) && is_dense(to) &&
                      same_order(from, to);
    if (!fits) return false;
  }
  return true;
}

}  // namespace

// targets[i] = grads[i] * inv_scale in the targets' dtype; found_inf becomes 1 where a gradient is not finite.
void _npu_unscale_into_(TensorList targets, TensorList grads, Tensor& found_inf, const Tensor& inv_scale) {
  constexpr const char* op = "_npu_unscale_into_";
  TORCH_CHECK(targets.size() == grads.size(), op, ": expected as many targets as gradients, got ", targets.size(),
              " and ", grads.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    TORCH_CHECK(targets[i].sizes() == grads[i].sizes(), op, ": expected a target of the gradient's shape ",
                grads[i].sizes(), ", got ", targets[i].sizes());
  }
  if (grads.empty() || targets[0].is_meta()) {
    return;
  }
  check_single(op, "found_inf", found_inf, kFloat);
  check_single(op, "inv_scale", inv_scale, kFloat);
  if (lacks("ForeachUnscaleInto") || !pairs_up(targets, grads)) {
    at::_foreach_copy_(targets, grads);
    return amp_unscale_(targets, found_inf, inv_scale);
  }
  DeviceOf guard(found_inf);
  add_float_status(found_inf);
  OpCommand cmd;
  cmd.Name("ForeachUnscaleInto");
  for (const Tensor& grad : grads) {
    cmd.Input(in_memory_order(grad));
  }
  cmd.InputAs(found_inf, {1}).InputAs(inv_scale, {1});
  for (const Tensor& target : targets) {
    cmd.Output(in_memory_order(target));
  }
  cmd.OutputAs(found_inf, {1}).Run();
}

void amp_unscale_(TensorList grads, Tensor& found_inf, const Tensor& inv_scale) {
  constexpr const char* op = "_amp_foreach_non_finite_check_and_unscale_";
  if (grads.empty()) {
    return;
  }
  check_single(op, "found_inf", found_inf, kFloat);
  check_single(op, "inv_scale", inv_scale, kFloat);
  TORCH_CHECK(inv_scale.device() == found_inf.device(), op, ": inv_scale and found_inf are on different devices");
  std::vector<Tensor> filled;
  filled.reserve(grads.size());
  bool uniform = true;
  for (const Tensor& grad : grads) {
    TORCH_CHECK(grad.device() == found_inf.device(), op, ": expected gradients on ", found_inf.device(), ", got ",
                grad.device());
    TORCH_CHECK(grad.layout() == kStrided, op, ": expected dense gradients");
    TORCH_CHECK(isFloatingType(grad.scalar_type()), op, ": expected floating-point gradients, got ",
                grad.scalar_type());
    if (grad.numel() > 0) {
      filled.push_back(grad);
      uniform = uniform && grad.scalar_type() == filled[0].scalar_type();
    }
  }
  if (filled.empty()) {
    return;
  }
  DeviceOf guard(found_inf);
  add_float_status(found_inf);
  if (uniform) {
    return unscale(filled, found_inf, inv_scale);
  }
  // A list operand has one dtype.
  for (const Tensor& grad : filled) {
    unscale(grad, found_inf, inv_scale);
  }
}

Tensor& amp_update_scale_(Tensor& scale, Tensor& growth_tracker, const Tensor& found_inf, double growth_factor,
                          double backoff_factor, int64_t growth_interval) {
  constexpr const char* op = "_amp_update_scale_";
  check_single(op, "current_scale", scale, kFloat);
  check_single(op, "growth_tracker", growth_tracker, kInt);
  check_single(op, "found_inf", found_inf, kFloat);
  DeviceOf guard(scale);
  const Tensor overflow = found_inf.reshape(scale.sizes()).ne(0);
  const Tensor steps = growth_tracker + 1;
  const Tensor complete = steps.eq(growth_interval);
  // The factors are doubles: one like 1.1 must not be rounded before the product is.
  const Tensor exact = scale.to(kDouble);
  const Tensor grown = (exact * growth_factor).to(kFloat), shrunk = (exact * backoff_factor).to(kFloat);
  const Tensor grows = complete.reshape(scale.sizes()).logical_and(grown.lt(std::numeric_limits<float>::infinity()));
  scale.copy_(at::where(overflow, shrunk, at::where(grows, grown, scale)));
  if (c10::npu::options().saturates) {
    npu_clear_float_status(npu_alloc_float_status(scale), 0);
  }
  growth_tracker.copy_(steps.masked_fill(complete.logical_or(overflow.reshape(steps.sizes())), 0));
  return scale;
}

}  // namespace at::native::npu
