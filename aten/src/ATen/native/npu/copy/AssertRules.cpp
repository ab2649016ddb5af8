// What the CPU checks of assertions and upstream's meta kernel does not.

#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu {

void check_one_element(const AtenArguments& a) {
  const int64_t n = a.tensor("self").numel();
  TORCH_CHECK(n == 1, "Boolean value of Tensor with ", n == 0 ? "no values" : "more than one value", " is ambiguous");
}

}  // namespace at::native::npu
