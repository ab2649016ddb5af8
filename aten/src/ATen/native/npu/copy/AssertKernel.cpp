// Assertions that the device makes or the host, and the tokens that order them in a traced graph.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

Tensor make_dep_token(std::optional<ScalarType> dtype, std::optional<Layout> /*layout*/, std::optional<Device> device,
                      std::optional<bool> /*pin_memory*/, std::optional<MemoryFormat> /*memory_format*/) {
  return empty_npu({}, dtype.value_or(kFloat), resolve_device(device));
}

Tensor functional_assert_async(const Tensor& self, std::string_view assert_msg, const Tensor& dep_token) {
  at::_assert_async(self, assert_msg);
  return dep_token.clone();
}

// A card has no operator that stops the stream: the host reads the value, and waits for it.
std::vector<Tensor> composed_assert(const AtenArguments& a) {
  std::string message = "Expected Tensor with single nonzero value, but got zero";
  if (a.has("assert_msg")) message = a["assert_msg"].toStringRef();
  if (message.empty()) message = "Assertion is failed";
  TORCH_CHECK(at::is_nonzero(a.tensor("self")), message);
  return {};
}

}  // namespace at::native::npu
