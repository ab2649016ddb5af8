// Randomised leaky ReLU. The slopes drawn in training are the noise that its gradient multiplies with.

#include <ATen/native/Resize.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

// Serves the three forms; `out` may be `self`.
Tensor& rrelu_with_noise_out(const Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
                             std::optional<Generator> generator, Tensor& out) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), kDtypeFloat, "rrelu_with_noise");
  TORCH_CHECK(self.sizes() == noise.sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  TORCH_CHECK(self.scalar_type() == noise.scalar_type() && self.device() == noise.device(),
              "rrelu_with_noise: noise must have the dtype and device of self, ", self.scalar_type(), " on ",
              self.device(), ", but has ", noise.scalar_type(), " on ", noise.device());
  if (!training) {
    return at::leaky_relu_out(out, self, (lower.toDouble() + upper.toDouble()) / 2);
  }
  noise.uniform_(lower.toDouble(), upper.toDouble(), std::move(generator));
  noise.masked_fill_(self.le(0).logical_not(), 1);  // not-a-number counts as above
  return at::mul_out(out, self, noise);
}

Tensor rrelu_with_noise(const Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
                        std::optional<Generator> generator) {
  Tensor out = empty_as(self);
  return npu::rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), out);
}

Tensor& rrelu_with_noise_(Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
                          std::optional<Generator> generator) {
  return npu::rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), self);
}

}  // namespace at::native::npu
