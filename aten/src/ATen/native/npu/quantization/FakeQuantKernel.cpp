// Quantization-aware training: the observer and fake quantization in one operator, whose buffers get their sizes on the
// first call.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <NPUNativeFunctions.h>

#include <limits>

namespace at::native::npu {

std::tuple<Tensor, Tensor> _fused_moving_avg_obs_fq_helper(const Tensor& self, const Tensor& observer_on,
                                                           const Tensor& fake_quant_on, Tensor& running_min,
                                                           Tensor& running_max, Tensor& scale, Tensor& zero_point,
                                                           double averaging_const, int64_t quant_min, int64_t quant_max,
                                                           int64_t ch_axis, bool per_row_fake_quant,
                                                           bool symmetric_quant) {
  TORCH_CHECK(self.scalar_type() == kFloat, "expected scalar type Float but found ", self.scalar_type());
  if (per_row_fake_quant) {
    TORCH_CHECK(ch_axis == 0 && self.dim() > 0,
                "Per-channel FakeQuant in fused_moving_avg_obs_fake_quant is only supported on axis == 0");
    if (running_min.numel() == 0) {
      for (const Tensor* buffer : {&running_min, &running_max, &scale, &zero_point}) buffer->resize_({self.size(0)});
      running_min.fill_(std::numeric_limits<float>::infinity());
      running_max.fill_(-std::numeric_limits<float>::infinity());
    }
  }
  const int64_t channels = per_row_fake_quant ? self.size(0) : 1;
  for (const Tensor* buffer : {&running_min, &running_max, &scale, &zero_point}) {
    TORCH_CHECK_INDEX(buffer->numel() >= channels, "fused_moving_avg_obs_fake_quant: a buffer of ", buffer->numel(),
                      " elements for ", channels, " channels");
  }
  DeviceOf guard(self);
  const Tensor output = empty_preserved(self, kFloat), mask = empty_preserved(self, kBool);
  OpCommand cmd;
  cmd.Name("FusedMovingAvgObsFakeQuant").Input(self).Input(observer_on).Input(fake_quant_on);
  cmd.Input(running_min).Input(running_max).Input(scale).Input(zero_point).Input(Scalar(averaging_const), kDouble);
  cmd.Output(running_min).Output(running_max).Output(scale).Output(zero_point).Output(output).Output(mask);
  cmd.Attr("quant_min", quant_min).Attr("quant_max", quant_max).Attr("ch_axis", ch_axis);
  cmd.Attr("per_row_fake_quant", per_row_fake_quant).Attr("symmetric_quant", symmetric_quant).Run();
  return {output, mask};
}

}  // namespace at::native::npu
