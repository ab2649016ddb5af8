// Streams and events for c10's generic code.

#include <c10/npu/impl/NPUGuardImpl.h>

#include <c10/core/DeviceCapability.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUEvent.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/impl/Interrupt.h>

namespace c10::npu::impl {

C10_REGISTER_GUARD_IMPL(PrivateUse1, NPUGuardImpl)

namespace {

// c10::Event keeps an opaque pointer and does not say which device it is on when it asks: the pointer is an NPUEvent.
NPUEvent& event_of(void* event) { return *static_cast<NPUEvent*>(event); }

}  // namespace

DeviceCapability NPUGuardImpl::getDeviceCapability(Device) const { return DeviceCapability(); }

Stream NPUGuardImpl::exchangeStream(Stream stream) const {
  const NPUStream next(stream);
  const NPUStream previous = getCurrentNPUStream(stream.device_index());
  setCurrentNPUStream(next);
  return previous.unwrap();
}

void NPUGuardImpl::synchronizeDevice(DeviceIndex device) const {
  const NPUGuard guard(device < 0 ? current_device() : device);
  const InterruptScope scope;
  device_synchronize();
}

void NPUGuardImpl::recordDataPtrOnStream(const DataPtr& data_ptr, const Stream& stream) const {
  NPUCachingAllocator::recordStream(data_ptr, NPUStream(stream));
}

void NPUGuardImpl::destroyEvent(void* event, DeviceIndex) const noexcept { delete static_cast<NPUEvent*>(event); }

void NPUGuardImpl::record(void** event, const Stream& stream, DeviceIndex device, EventFlag flag) const {
  TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ", static_cast<int>(device),
              " does not match recording stream's device index ", static_cast<int>(stream.device_index()), ".");
  if (*event == nullptr) {
    auto made = std::make_unique<NPUEvent>(/*enable_timing=*/flag == EventFlag::BACKEND_DEFAULT);
    made->record(NPUStream(stream));
    *event = made.release();
  } else {
    event_of(*event).record(NPUStream(stream));
  }
}

void NPUGuardImpl::block(void* event, const Stream& stream) const {
  if (event != nullptr) {
    event_of(event).block(NPUStream(stream));
  }
}

bool NPUGuardImpl::queryEvent(void* event) const { return event == nullptr || event_of(event).query(); }

void NPUGuardImpl::synchronizeStream(const Stream& stream) const {
  const InterruptScope scope;
  NPUStream(stream).synchronize();
}

void NPUGuardImpl::synchronizeEvent(void* event) const {
  if (event != nullptr) {
    const InterruptScope scope;
    event_of(event).synchronize();
  }
}

double NPUGuardImpl::elapsedTime(void* start, void* end, DeviceIndex) const {
  TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
  return event_of(start).elapsed_time(event_of(end));
}

}  // namespace c10::npu::impl
