// Events over ACL's; each call comes after the tasks that wait in the device's queue.

#include <c10/npu/NPUEvent.h>

#include <acl_loader.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUOptions.h>
#include <c10/npu/NPUTaskQueue.h>
#include <c10/npu/impl/Exit.h>
#include <c10/npu/impl/Interrupt.h>
#include <c10/npu/impl/Trace.h>

namespace c10::npu {

namespace {

// Scope in which the device is active and no task of it waits in the queue.
struct OrderedCall {
  explicit OrderedCall(DeviceIndex device, bool raise = true) : guard(device) {
    impl::stay_if_exiting();
    drain_task_queue(activate_device(), raise);
  }
  ~OrderedCall() { impl::stay_if_exiting(); }
  NPUGuard guard;
};

aclrtEvent create_event() {
  static const bool extended = acl::has_function("aclrtCreateEventExWithFlag");
  constexpr uint32_t kFlags = ACL_EVENT_TIME_LINE | ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS;
  aclrtEvent event = nullptr;
  if (extended) {
    NPU_CHECK(acl::aclrtCreateEventExWithFlag(&event, kFlags));
  } else {
    // Before CANN 8.0 an event with flags lacks something: up to 5.0 it cannot be waited for, later not be queried.
    NPU_CHECK(acl::aclrtCreateEvent(&event));
  }
  return event;
}

uintptr_t trace_key(aclrtEvent event) { return reinterpret_cast<uintptr_t>(event); }

}  // namespace

NPUEvent::~NPUEvent() {
  // After a shutdown or in a forked child ACL's side of the event is gone, or not ours.
  if (event_ == nullptr || is_shut_down() || is_in_bad_fork()) {
    return;
  }
  try {
    if (traced_) {
      impl::trace([this](auto& to) { to.trace_gpu_event_deletion(DeviceType::PrivateUse1, trace_key(event_)); });
    }
    const NPUGuard guard(device_index_);
    activate_device();
    NPU_CHECK_WARN(acl::aclrtDestroyEvent(event_));
  } catch (const std::exception& error) {
    TORCH_WARN("An npu event could not be destroyed: ", error.what());
  }
}

void NPUEvent::record(const NPUStream& stream, bool raise_deferred) {
  TORCH_CHECK(event_ == nullptr || device_index_ == stream.device_index(),
              "Event device npu:", static_cast<int>(device_index_),
              " does not match recording stream's device npu:", static_cast<int>(stream.device_index()), ".");
  const OrderedCall call(stream.device_index(), raise_deferred);
  if (event_ == nullptr) {
    event_ = create_event();
    device_index_ = stream.device_index();
    if (traced_) {
      impl::trace([this](auto& to) { to.trace_gpu_event_creation(DeviceType::PrivateUse1, trace_key(event_)); });
    }
  }
  NPU_CHECK(acl::aclrtRecordEvent(event_, stream.stream()));
  if (traced_) {
    impl::trace([&](auto& to) {
      to.trace_gpu_event_record(DeviceType::PrivateUse1, trace_key(event_), impl::trace_key(stream));
    });
  }
}

void NPUEvent::block(const NPUStream& stream) const {
  if (event_ == nullptr) {
    return;
  }
  const OrderedCall call(stream.device_index());
  NPU_CHECK(acl::aclrtStreamWaitEvent(stream.stream(), event_));
  if (traced_) {
    impl::trace([&](auto& to) {
      to.trace_gpu_event_wait(DeviceType::PrivateUse1, trace_key(event_), impl::trace_key(stream));
    });
  }
}

bool NPUEvent::query() const {
  if (event_ == nullptr) {
    return true;
  }
  const bool passed = query_untraced();
  if (passed && traced_) {
    // Who has seen that it is passed is ordered after it, as by a wait.
    impl::trace([this](auto& to) { to.trace_gpu_event_synchronization(DeviceType::PrivateUse1, trace_key(event_)); });
  }
  return passed;
}

bool NPUEvent::query_untraced() const {
  const OrderedCall call(device_index_);
  static const bool with_status = acl::has_function("aclrtQueryEventStatus");
  if (with_status) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    NPU_CHECK(acl::aclrtQueryEventStatus(event_, &status));
    return status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
  }
  aclrtEventStatus status = ACL_EVENT_STATUS_RESERVED;
  NPU_CHECK(acl::aclrtQueryEvent(event_, &status));
  return status == ACL_EVENT_STATUS_COMPLETE;
}

void NPUEvent::synchronize() const {
  if (event_ == nullptr) {
    return;
  }
  const OrderedCall call(device_index_);
  static const bool bounded = acl::has_function("aclrtSynchronizeEventWithTimeout");
  if (bounded) {
    NPU_CHECK(impl::wait_in_slices(options().sync_timeout_ms, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT,
                                   [this](int32_t ms) { return acl::aclrtSynchronizeEventWithTimeout(event_, ms); }));
  } else {
    NPU_CHECK(acl::aclrtSynchronizeEvent(event_));
  }
  if (traced_) {
    impl::trace([this](auto& to) { to.trace_gpu_event_synchronization(DeviceType::PrivateUse1, trace_key(event_)); });
  }
}

float NPUEvent::elapsed_time(const NPUEvent& end) const {
  TORCH_CHECK_VALUE(isCreated() && end.isCreated(), "Both events must be recorded before calculating elapsed time.");
  TORCH_CHECK_VALUE(query() && end.query(), "Both events must be completed before calculating elapsed time.");
  if (!enable_timing_ || !end.enable_timing_) {
    TORCH_WARN_ONCE("elapsed_time is used on events made without enable_timing=True; ask for it when you make them.");
  }
  const OrderedCall call(device_index_);
  float milliseconds = 0;
  NPU_CHECK(acl::aclrtEventElapsedTime(&milliseconds, event_, end.event_));
  return milliseconds;
}

}  // namespace c10::npu
