// Activations that are no group of the table: gradients without an out= form, buffers that only the CPU keeps.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/MetaRules.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

namespace {

Tensor of_two(const char* ir, const char* name, const Tensor& first, const Tensor& second) {
  DeviceOf guard(first);
  Functional<meta_rules::binary, 1> op;
  op.meta(first, second);
  check_dtype(op.compute_dtype(), kDtypeFloat, name);
  if (op.result(0).numel() > 0) {
    OpCommand cmd;
    cmd.Name(ir).Elementwise().Compute(op.compute_dtype()).Input(first).Input(second).Output(op.result(0)).Run();
  }
  return op.take();
}

}  // namespace

Tensor hardswish_backward(const Tensor& grad_output, const Tensor& self) {
  return of_two("HardSwishGrad", "hardswish_backward_cpu", grad_output, self);
}

Tensor mish_backward(const Tensor& grad_output, const Tensor& self) {
  return of_two("MishGrad", "mish_backward_cpu", grad_output, self);
}

// The buffer that upstream's CPU kernel keeps for its backward is not needed here: it stays empty.
std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& self) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), kDtypeFloat, "log_sigmoid_cpu");
  Tensor result = empty_preserved(self, self.scalar_type());
  if (self.numel() > 0) {
    OpCommand cmd;
    cmd.Name("LogSigmoid").Elementwise().Input(self).Output(result).Run();
  }
  return {std::move(result), empty_npu({0}, self.scalar_type(), self.device())};
}

std::tuple<Tensor&, Tensor&> log_sigmoid_forward_out(const Tensor& self, Tensor& output, Tensor& buffer) {
  TORCH_CHECK(output.scalar_type() == self.scalar_type(), "expected scalar type ", self.scalar_type(), " but found ",
              output.scalar_type());
  give(std::get<0>(npu::log_sigmoid_forward(self)), output);
  buffer.resize_({0});
  return std::forward_as_tuple(output, buffer);
}

Tensor log_sigmoid_backward(const Tensor& grad_output, const Tensor& self, const Tensor& /*buffer*/) {
  return of_two("LogSigmoidGrad", "log_sigmoid_backward_cpu", grad_output, self);
}

Tensor& log_sigmoid_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& buffer, Tensor& out) {
  return give(npu::log_sigmoid_backward(grad_output, self, buffer), out);
}

Tensor _prelu_kernel(const Tensor& self, const Tensor& weight) { return of_two("PRelu", "prelu_cpu", self, weight); }

std::tuple<Tensor, Tensor> _prelu_kernel_backward(const Tensor& grad_output, const Tensor& self, const Tensor& weight) {
  const Tensor positive = self.gt(0);
  return {at::where(positive, grad_output, weight.mul(grad_output)),
          at::where(positive, at::zeros({}, self.options()), self.mul(grad_output))};
}

}  // namespace at::native::npu
