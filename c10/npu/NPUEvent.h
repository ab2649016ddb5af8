#pragma once
// Events: marks in streams that other streams and the host wait for, and that carry a time stamp.

#include <acl/acl.h>
#include <c10/npu/NPUStream.h>

namespace c10::npu {

// Movable, not copyable. The ACL event is made on first record, on the device of the stream.
class C10_NPU_API NPUEvent {
 public:
  explicit NPUEvent(bool enable_timing = false) noexcept : enable_timing_(enable_timing) {}
  // One that the sanitizer does not hear of: of an allocator's books, used under its lock.
  static NPUEvent untraced() noexcept {
    NPUEvent event;
    event.traced_ = false;
    return event;
  }
  ~NPUEvent();
  NPUEvent(const NPUEvent&) = delete;
  NPUEvent& operator=(const NPUEvent&) = delete;
  NPUEvent(NPUEvent&& other) noexcept { swap(other); }
  NPUEvent& operator=(NPUEvent&& other) noexcept {
    swap(other);
    return *this;
  }

  // Null before the first record.
  aclrtEvent event() const { return event_; }
  operator aclrtEvent() const { return event_; }
  bool isCreated() const { return event_ != nullptr; }
  bool enable_timing() const { return enable_timing_; }
  DeviceIndex device_index() const { return device_index_; }
  std::optional<Device> device() const {
    return isCreated() ? std::optional(Device(DeviceType::PrivateUse1, device_index_)) : std::nullopt;
  }

  void record() { record(getCurrentNPUStream()); }
  // `raise_deferred`: whether an error that a queued task left behind is raised here (Note [Task queue]); frees, which
  // come from destructors, leave it to a later call.
  void record(const NPUStream& stream, bool raise_deferred = true);
  void recordOnce(const NPUStream& stream) {
    if (!isCreated()) {
      record(stream);
    }
  }
  // Lets later work of the stream wait for the mark; does nothing when the event was never recorded.
  void block(const NPUStream& stream) const;
  // True when the mark has been passed, and when the event was never recorded.
  bool query() const;
  void synchronize() const;
  // Milliseconds from this mark to the other. Throws ValueError when one was not recorded or not passed yet; warns
  // when one was made without enable_timing, which costs nothing here.
  float elapsed_time(const NPUEvent& end) const;

 private:
  bool query_untraced() const;
  void swap(NPUEvent& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(device_index_, other.device_index_);
    std::swap(enable_timing_, other.enable_timing_);
    std::swap(traced_, other.traced_);
  }
  aclrtEvent event_ = nullptr;
  DeviceIndex device_index_ = -1;
  bool enable_timing_ = false;
  bool traced_ = true;  // see untraced()
};

}  // namespace c10::npu
