// Two operators outside of PyTorch, each one or two Ascend IR operators issued through OpCommand. Only what is used is
// included: torch/extension.h would double the time to compile.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace {

using at::Tensor;
using at::native::npu::DeviceOf;
using at::native::npu::OpCommand;

// x * sigmoid(x) * gate, out of operators that the device has.
Tensor swish_gate(const Tensor& x, const Tensor& gate) {
  TORCH_CHECK(x.sizes() == gate.sizes() && x.scalar_type() == gate.scalar_type(), "swish_gate: x is ", x.scalar_type(),
              x.sizes(), ", gate is ", gate.scalar_type(), gate.sizes(), "; they must be alike");
  DeviceOf guard(x);
  const Tensor swish = at::empty_like(x, at::MemoryFormat::Contiguous);
  OpCommand swish_command;
  swish_command.Name("Swish").Input(x).Output(swish).Run();
  const Tensor y = at::empty_like(swish);
  OpCommand mul_command;
  mul_command.Name("Mul").Input(swish).Input(gate).Output(y).Run();
  return y;
}

// log(cosh(x)) by the IR operator LogCosh, which only a device with ../simulator_ops/log_cosh.cpp has.
Tensor log_cosh(const Tensor& x) {
  DeviceOf guard(x);
  const Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
  OpCommand command;
  command.Name("LogCosh").Input(x).Output(y).Run();
  return y;
}

}  // namespace

TORCH_LIBRARY(npu_example, m) {
  m.def("swish_gate(Tensor x, Tensor gate) -> Tensor");
  m.def("log_cosh(Tensor x) -> Tensor");
}

// The npu device is upstream's PrivateUse1.
TORCH_LIBRARY_IMPL(npu_example, PrivateUse1, m) {
  m.impl("swish_gate", swish_gate);
  m.impl("log_cosh", log_cosh);
}
