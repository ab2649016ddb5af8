// Optimizer steps tensor by tensor.

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/inference/Composed.h>

namespace at::native::npu::composed {
namespace {

using OptionalTensor = std::optional<Tensor>;

bool given(const OptionalTensor& t) { return t.has_value() && t->defined(); }

// A step after an overflow leaves everything as it was; only the device knows whether there was one.
void store(const Tensor& target, const Tensor& value, const OptionalTensor& found_inf) {
  if (given(found_inf)) {
    target.copy_(at::where(found_inf->reshape({}).eq(1), target, value.to(target.scalar_type())));
  } else {
    target.copy_(value);
  }
}

// The gradient as the step takes it. A scaled one is unscaled where it lies, too, as upstream does.
Tensor gradient(const Tensor& grad, const OptionalTensor& grad_scale, const OptionalTensor& found_inf, bool maximize) {
  Tensor g = wide(grad, grad.scalar_type());
  if (given(grad_scale)) {
    g = g / grad_scale->reshape({}).to(g.scalar_type());
    store(grad, g, found_inf);
  }
  return maximize ? g.neg() : g;
}

}  // namespace

void sgd(TensorList params, TensorList grads, TensorList momenta, double weight_decay, double momentum,
         const Tensor& lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
         const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor param = wide(params[i], params[i].scalar_type());
    Tensor grad = gradient(grads[i], grad_scale, found_inf, maximize);
    if (weight_decay != 0) grad = at::add(grad, param, weight_decay);
    if (!momenta.empty()) {
      const Tensor buffer = is_first_step ? grad : momenta[i] * momentum + grad * (1 - dampening);
      store(momenta[i], buffer, found_inf);
      grad = nesterov ? at::add(grad, buffer, momentum) : buffer;
    }
    store(params[i], param - grad * lr, found_inf);
  }
}

void adam(bool decoupled, TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
          TensorList max_exp_avg_sqs, TensorList steps, const Tensor& lr, double beta1, double beta2,
          double weight_decay, double eps, bool maximize, const OptionalTensor& grad_scale,
          const OptionalTensor& found_inf) {
  for (size_t i = 0; i < params.size(); ++i) {
    const ScalarType compute = wide_type(params[i].scalar_type());
    Tensor param = params[i].to(compute);
    Tensor grad = gradient(grads[i], grad_scale, found_inf, maximize);
    if (weight_decay != 0) {
      if (decoupled) {
        param = param - param * (lr * weight_decay);
      } else {
        grad = at::add(grad, param, weight_decay);
      }
    }
    const Tensor mean = at::lerp(exp_avgs[i].to(compute), grad, 1 - beta1);
    const Tensor square = exp_avg_sqs[i].to(compute) * beta2 + at::square(grad) * (1 - beta2);
    const Tensor step = steps[i].reshape({}).to(TensorOptions(params[i].device()).dtype(compute));
    const Tensor rate = lr / (1 - at::pow(Scalar(beta1), step));
    const Tensor root = at::sqrt(1 - at::pow(Scalar(beta2), step));
    Tensor most = square;
    if (!max_exp_avg_sqs.empty()) {
      most = at::maximum(max_exp_avg_sqs[i].to(compute), square);
      store(max_exp_avg_sqs[i], most, found_inf);
    }
    store(exp_avgs[i], mean, found_inf);
    store(exp_avg_sqs[i], square, found_inf);
    store(params[i], param - rate * mean / (at::sqrt(most) / root + eps), found_inf);
  }
}

}  // namespace at::native::npu::composed
