// The device's float status register as operators: torch.npu_alloc_float_status, npu_get_float_status and
// npu_clear_float_status, with which a loss scaler learns that something overflowed without looking at gradients.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {
namespace {

constexpr int64_t kElements = 8;

void check_status(const char* op, const Tensor& self) {
  TORCH_CHECK(self.dim() == 1 && self.size(0) == kElements && self.scalar_type() == kFloat && self.is_contiguous(), op,
              ": expected the tensor that npu_alloc_float_status made (float32, shape [8]), got ", self.scalar_type(),
              " of shape ", self.sizes());
}

// The plug-in's other mode, of cards that keep infinities, reads what there is no register for here.
void check_mode(const char* name, int64_t mode) {
  TORCH_CHECK_NOT_IMPLEMENTED(mode == 0, name, ": mode must be 0, got ", mode);
}

Tensor status_like(const Tensor& self) { return at::empty({kElements}, self.options().dtype(kFloat)); }

}  // namespace

Tensor npu_alloc_float_status(const Tensor& self) {
  Tensor status = status_like(self);
  if (self.is_meta()) {
    return status;
  }
  DeviceOf guard(self);
  OpCommand cmd;
  cmd.Name("NPUAllocFloatStatus").Output(status).Run();
  return status;
}

// The operator writes the status into its input, which is what ported code reads.
Tensor npu_get_float_status(const Tensor& self, int64_t mode) {
  check_status("npu_get_float_status", self);
  check_mode("npu_get_float_status", mode);
  if (self.is_meta()) {
    return self;
  }
  DeviceOf guard(self);
  OpCommand cmd;
  cmd.Name("NPUGetFloatStatus").Input(self).Output(status_like(self)).Run();
  return self;
}

Tensor npu_clear_float_status(const Tensor& self, int64_t mode) {
  check_status("npu_clear_float_status", self);
  check_mode("npu_clear_float_status", mode);
  Tensor cleared = status_like(self);
  if (self.is_meta()) {
    return cleared;
  }
  DeviceOf guard(self);
  OpCommand cmd;
  cmd.Name("NPUClearFloatStatus").Input(self).Output(cleared).Run();
  return cleared;
}

}  // namespace at::native::npu
