#pragma once
// The device guard that c10's generic code (DeviceGuard, StreamGuard, torch.Stream, torch.Event, autograd's engine)
// uses for this device.

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUStream.h>

namespace c10::npu::impl {

struct C10_NPU_API NPUGuardImpl final : public c10::impl::DeviceGuardImplInterface {
  static constexpr DeviceType static_type = DeviceType::PrivateUse1;

  NPUGuardImpl() = default;
  explicit NPUGuardImpl(DeviceType type) { TORCH_INTERNAL_ASSERT(type == DeviceType::PrivateUse1); }

  DeviceType type() const override { return DeviceType::PrivateUse1; }

  Device exchangeDevice(Device device) const override {
    TORCH_INTERNAL_ASSERT_DEBUG_ONLY(device.type() == DeviceType::PrivateUse1);
    return Device(DeviceType::PrivateUse1, ExchangeDevice(device.index()));
  }
  Device getDevice() const override { return Device(DeviceType::PrivateUse1, current_device()); }
  void setDevice(Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override { unchecked_set_device(device.index()); }
  DeviceIndex deviceCount() const noexcept override { return device_count(); }
  DeviceCapability getDeviceCapability(Device device) const override;

  Stream getStream(Device device) const override { return getCurrentNPUStream(device.index()).unwrap(); }
  Stream getDefaultStream(Device device) const override { return getDefaultNPUStream(device.index()).unwrap(); }
  Stream getStreamFromGlobalPool(Device device, bool isHighPriority = false) const override {
    return getStreamFromPool(isHighPriority, device.index()).unwrap();
  }
  Stream getNewStream(Device device, int priority = 0) const override {
    return getStreamFromPool(priority, device.index()).unwrap();
  }
  Stream exchangeStream(Stream stream) const override;
  void* getStreamNativeHandle(const Stream stream) const override { return NPUStream(stream).stream(); }
  bool queryStream(const Stream& stream) const override { return NPUStream(stream).query(); }
  void synchronizeStream(const Stream& stream) const override;
  void synchronizeDevice(DeviceIndex device) const override;
  void recordDataPtrOnStream(const DataPtr& data_ptr, const Stream& stream) const override;

  void destroyEvent(void* event, DeviceIndex device) const noexcept override;
  void record(void** event, const Stream& stream, DeviceIndex device, EventFlag flag) const override;
  void block(void* event, const Stream& stream) const override;
  bool queryEvent(void* event) const override;
  void synchronizeEvent(void* event) const override;
  double elapsedTime(void* start, void* end, DeviceIndex device) const override;
};

}  // namespace c10::npu::impl
