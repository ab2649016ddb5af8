// Results of fake quantization that upstream has no meta kernel for.

#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu {

OutputSpecs fake_quant_outputs(const AtenArguments& a) {
  return {a.like("self"), output_of(kBool, a.tensor("self").sizes())};
}

}  // namespace at::native::npu
