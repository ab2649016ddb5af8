// The operator that only waits; see ATen/npu/Sleep.h.

#include <ATen/npu/Sleep.h>

#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/ops/empty.h>
#include <c10/npu/NPUFunctions.h>

namespace at::npu {

void sleep(int64_t cycles) {
  TORCH_CHECK_VALUE(cycles >= 0, "torch.npu._sleep: cycles must not be negative, but are ", cycles);
  TORCH_CHECK_NOT_IMPLEMENTED(
      c10::npu::is_simulator(),
      "torch.npu._sleep: only the simulated NPU can be made to wait; CANN has no operator for it");
  const Tensor mark = at::empty({1}, TensorOptions().device(kPrivateUse1, c10::npu::current_device()).dtype(kByte));
  at::native::npu::OpCommand cmd;
  cmd.Name("Sleep").Input(mark).Output(mark).Attr("nanoseconds", cycles).Run();
}

}  // namespace at::npu
