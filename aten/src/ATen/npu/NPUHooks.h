#pragma once
// What ATen asks of the device outside operators: availability, generators, pinned memory, storage resizing.

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/npu/NPUMacros.h>

namespace at::npu {

struct TORCH_NPU_API NPUHooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override;
  bool hasPrimaryContext(DeviceIndex device_index) const override;
  void init() const override;

  DeviceIndex deviceCount() const override;
  void setCurrentDevice(DeviceIndex device) const override;
  DeviceIndex getCurrentDevice() const override;
  DeviceIndex exchangeDevice(DeviceIndex device) const override;
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override;
  Device getDeviceFromPtr(void* data) const override;

  bool isPinnedPtr(const void* data) const override;
  Allocator* getPinnedMemoryAllocator() const override;

  const Generator& getDefaultGenerator(DeviceIndex device_index) const override;
  Generator getNewGenerator(DeviceIndex device_index = -1) const override;

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t newsize) const override;
};

}  // namespace at::npu
