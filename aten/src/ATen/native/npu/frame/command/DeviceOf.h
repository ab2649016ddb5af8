#pragma once
// Makes an operand's device the current one while a kernel runs; costs a comparison where it already is.

#include <ATen/core/Tensor.h>
#include <c10/npu/NPUFunctions.h>

namespace at::native::npu {

class DeviceOf {
 public:
  explicit DeviceOf(const Tensor& tensor)
      : DeviceOf(tensor.defined() && tensor.device().is_privateuseone() ? tensor.device().index() : DeviceIndex{-1}) {}
  explicit DeviceOf(Device device) : DeviceOf(device.index()) {}
  ~DeviceOf() {
    if (previous_ >= 0) c10::npu::MaybeExchangeDevice(previous_);
  }
  DeviceOf(const DeviceOf&) = delete;
  DeviceOf& operator=(const DeviceOf&) = delete;

 private:
  explicit DeviceOf(DeviceIndex index) {
    if (index >= 0 && c10::npu::current_device() != index) previous_ = c10::npu::ExchangeDevice(index);
  }
  DeviceIndex previous_ = -1;
};

}  // namespace at::native::npu
