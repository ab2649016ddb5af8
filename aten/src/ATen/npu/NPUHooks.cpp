// The hooks, and their registration together with the device type's name.

#include <ATen/npu/NPUHooks.h>

#include <ATen/native/npu/frame/inference/Resize.h>
#include <ATen/npu/CachingHostAllocator.h>
#include <ATen/npu/NPUGeneratorImpl.h>
#include <c10/core/DeviceType.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUFunctions.h>

namespace at::npu {

bool NPUHooks::isAvailable() const { return c10::npu::device_count() > 0; }

bool NPUHooks::hasPrimaryContext(DeviceIndex device_index) const { return c10::npu::hasPrimaryContext(device_index); }

void NPUHooks::init() const { c10::npu::activate_device(); }

DeviceIndex NPUHooks::deviceCount() const { return c10::npu::device_count(); }

void NPUHooks::setCurrentDevice(DeviceIndex device) const { c10::npu::set_device(device); }

DeviceIndex NPUHooks::getCurrentDevice() const { return c10::npu::current_device(); }

DeviceIndex NPUHooks::exchangeDevice(DeviceIndex device) const { return c10::npu::ExchangeDevice(device); }

DeviceIndex NPUHooks::maybeExchangeDevice(DeviceIndex device) const { return c10::npu::MaybeExchangeDevice(device); }

Device NPUHooks::getDeviceFromPtr(void* data) const {
  const auto device = c10::npu::NPUCachingAllocator::getDeviceOf(data);
  TORCH_CHECK(device.has_value(), "The pointer ", data, " is not memory of an npu that this process allocated");
  return Device(DeviceType::PrivateUse1, *device);
}

bool NPUHooks::isPinnedPtr(const void* data) const { return at::npu::isPinnedPtr(data); }

Allocator* NPUHooks::getPinnedMemoryAllocator() const { return getCachingHostAllocator(); }

const Generator& NPUHooks::getDefaultGenerator(DeviceIndex device_index) const {
  return detail::getDefaultNPUGenerator(device_index);
}

Generator NPUHooks::getNewGenerator(DeviceIndex device_index) const { return detail::createNPUGenerator(device_index); }

void NPUHooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t newsize) const {
  at::native::npu::resize_storage(storage.unsafeGetStorageImpl(), newsize);
}

namespace {

// Names the device type and hands the hooks to ATen when the library is loaded; both are needed for
// torch.device("npu") to mean anything.
const bool registered = [] {
  c10::register_privateuse1_backend("npu");
  at::RegisterPrivateUse1HooksInterface(new NPUHooks);
  return true;
}();

}  // namespace
}  // namespace at::npu
