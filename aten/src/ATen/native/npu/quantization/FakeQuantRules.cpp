// Results of fake quantization that upstream has no meta kernel for.

#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu {

OutputSpecs fake_quant_outputs(const AtenArguments& a) {
  return {a.like("self"), output_of(kBool, a.tensor("self").sizes())};
}

// At the call, as upstream on every device: the host waits for it.
void check_zero_points(const AtenArguments& a) {
  const Tensor& points = a.tensor("zero_point");
  if (points.numel() == 0 || isFloatingType(points.scalar_type())) return;
  const auto [least, most] = at::aminmax(points);
  TORCH_CHECK(least.item<int64_t>() >= a["quant_min"].toInt() && most.item<int64_t>() <= a["quant_max"].toInt(),
              "`zero_point` must be between `quant_min` and `quant_max`.");
}

}  // namespace at::native::npu
