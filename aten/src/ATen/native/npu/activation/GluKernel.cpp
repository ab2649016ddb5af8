// The gradient of the gated linear unit, which upstream states as no structured operator.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

Tensor glu_backward(const Tensor& grad_output, const Tensor& self, int64_t dim) {
  DeviceOf guard(self);
  const Tensor dx = empty_as(self);
  if (self.numel() > 0) {
    OpCommand cmd;
    cmd.Name("GLUGrad").Input(grad_output).Input(self).Output(dx).Attr("dim", dim).Run();
  }
  return dx;
}

}  // namespace at::native::npu
