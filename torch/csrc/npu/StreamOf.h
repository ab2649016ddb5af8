#pragma once
// The stream that Python names by its number and its device's.

#include <c10/npu/NPUStream.h>

#include <cstdint>

namespace torch::npu {

inline c10::npu::NPUStream stream_of(int64_t id, int64_t device) {
  return c10::npu::NPUStream::unpack3(id, static_cast<c10::DeviceIndex>(device), c10::DeviceType::PrivateUse1);
}

}  // namespace torch::npu
