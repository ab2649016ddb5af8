// Assertions that the device makes, and the tokens that order them in a traced graph.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

void check_one_element(const AtenArguments& a) {
  const int64_t n = a.tensor("self").numel();
  TORCH_CHECK(n == 1, "Boolean value of Tensor with ", n == 0 ? "no values" : "more than one value", " is ambiguous");
}

Tensor make_dep_token(std::optional<ScalarType> dtype, std::optional<Layout> /*layout*/, std::optional<Device> device,
                      std::optional<bool> /*pin_memory*/, std::optional<MemoryFormat> /*memory_format*/) {
  return empty_npu({}, dtype.value_or(kFloat), resolve_device(device));
}

Tensor functional_assert_async(const Tensor& self, std::string_view assert_msg, const Tensor& dep_token) {
  at::_assert_async(self, assert_msg);
  return dep_token.clone();
}

}  // namespace at::native::npu
