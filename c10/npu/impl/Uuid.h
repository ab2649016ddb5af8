#pragma once
// A number for a device that is the same in every process of the host, and different for its other devices.

#include <c10/core/Device.h>
#include <c10/npu/NPUMacros.h>

#include <array>
#include <cstdint>

namespace c10::npu::impl {

// ACL tells no such thing: a hash of the host's id and the device's number on it, as a version 8 UUID.
C10_NPU_API std::array<uint8_t, 16> device_uuid(DeviceIndex device);

}  // namespace c10::npu::impl
