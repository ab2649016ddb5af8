#pragma once
// Operators of the simulated device on CPU tensors: where upstream has no CPU kernel to compare with, the device's own
// serves (torchvision's operators). Which sources are compiled for it says HOST_KERNEL_SOURCES in
// caffe2/CMakeLists.txt.

#include <ATen/native/npu/frame/command/OpCommand.h>

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace at::native::npu {

// Issues one IR operator where its tensors are: through OpCommand on npu, by calling the kernel on the CPU.
//   AnyCommand(x.device(), "Nms").Input(x).Input(scores).Input(threshold, kDouble).Output(kept).Output(count).Run();
class AnyCommand {
 public:
  AnyCommand(Device device, const char* type);

  // An undefined tensor is an optional input that is not given.
  AnyCommand& Input(const Tensor& input);
  AnyCommand& Input(const Scalar& value, ScalarType dtype);
  // On the CPU it must be contiguous.
  AnyCommand& Output(const Tensor& output);
  AnyCommand& Attr(const char* name, bool value);
  AnyCommand& Attr(const char* name, int64_t value);
  AnyCommand& Attr(const char* name, IntArrayRef value);
  // On the CPU, what the kernel refuses (a region of an image that is not there) is thrown here.
  void Run();

 private:
  using Value = std::variant<bool, int64_t, std::vector<int64_t>>;
  friend class HostContext;

  const char* type_;
  std::optional<OpCommand> device_;
  std::vector<Tensor> inputs_, outputs_;
  std::map<std::string, Value, std::less<>> attrs_;
};

}  // namespace at::native::npu
