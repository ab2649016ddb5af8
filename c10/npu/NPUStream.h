#pragma once
// Streams: a default one per device, two pools of 32 (normal and high priority), and streams made by others.
// Mirrors c10/cuda/CUDAStream.h.

#include <acl/acl.h>
#include <c10/core/Stream.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUMacros.h>

#include <ostream>
#include <tuple>

namespace c10::npu {

// Note [Stream ids]
// 0 is the default stream of a device. Odd ids are pool streams: bit 0 set, bit 1 high priority, index above.
// Other even ids are the handle of an external stream, which is aligned.
// The default stream is ACL's own (a null handle), as on CUDA: it means "of the active device", so whoever hands a
// handle to ACL activates the stream's device first. launch(), NPUStream and NPUEvent do.
class C10_NPU_API NPUStream {
 public:
  enum Unchecked { UNCHECKED };

  explicit NPUStream(Stream stream) : stream_(stream) {
    TORCH_CHECK(stream_.device_type() == DeviceType::PrivateUse1, "Expected a npu stream, but got: ", stream);
  }
  explicit NPUStream(Unchecked, Stream stream) : stream_(stream) {}

  bool operator==(const NPUStream& other) const noexcept { return unwrap() == other.unwrap(); }
  bool operator!=(const NPUStream& other) const noexcept { return unwrap() != other.unwrap(); }

  operator aclrtStream() const { return stream(); }
  operator Stream() const { return unwrap(); }

  DeviceType device_type() const { return DeviceType::PrivateUse1; }
  DeviceIndex device_index() const { return stream_.device_index(); }
  Device device() const { return Device(DeviceType::PrivateUse1, device_index()); }
  StreamId id() const { return stream_.id(); }

  // Whether all work so far is done. Throws when the stream has failed.
  bool query() const;
  // Waits for all work so far; throws what went wrong on the stream. Bounded by ACL_DEVICE_SYNC_TIMEOUT.
  void synchronize() const;
  // 0, or -1 for a stream of the high-priority pool.
  int priority() const;

  // ACL's handle; null for a default stream (Note [Stream ids]).
  aclrtStream stream() const { return C10_LIKELY(stream_.id() == 0) ? nullptr : stream_slow(); }
  Stream unwrap() const { return stream_; }

  struct c10::StreamData3 pack3() const { return stream_.pack3(); }
  static NPUStream unpack3(StreamId stream_id, DeviceIndex device_index, DeviceType device_type) {
    return NPUStream(Stream::unpack3(stream_id, device_index, device_type));
  }

  // Least and greatest priority; lower numbers run first.
  static std::tuple<int, int> priority_range() { return {0, -1}; }

 private:
  aclrtStream stream_slow() const;
  Stream stream_;
};

// The next stream of a pool, round robin; pool streams are made when first handed out. -1 means the current device.
C10_NPU_API NPUStream getStreamFromPool(bool isHighPriority = false, DeviceIndex device = -1);
C10_NPU_API NPUStream getStreamFromPool(int priority, DeviceIndex device = -1);
// Wraps a stream that somebody else made on that device and keeps alive. A null handle is the default stream.
C10_NPU_API NPUStream getStreamFromExternal(aclrtStream stream, DeviceIndex device);
C10_NPU_API NPUStream getDefaultNPUStream(DeviceIndex device = -1);
// The stream that this thread uses on the device; the default stream at first.
inline NPUStream getCurrentNPUStream(DeviceIndex device = -1) {
  const auto& thread = detail::thread_device;
  if (device == -1) {
    device = thread.current;
  } else if (C10_UNLIKELY(device != thread.current)) {
    detail::check_device_index(device);
  }
  const StreamId id = C10_LIKELY(thread.streams == nullptr) ? 0 : thread.streams[device];
  return NPUStream(NPUStream::UNCHECKED, Stream(Stream::UNSAFE, Device(DeviceType::PrivateUse1, device), id));
}
// Changes the current stream of the stream's device, not the current device.
C10_NPU_API void setCurrentNPUStream(NPUStream stream);

C10_NPU_API std::ostream& operator<<(std::ostream& out, const NPUStream& stream);

}  // namespace c10::npu

template <>
struct std::hash<c10::npu::NPUStream> {
  size_t operator()(const c10::npu::NPUStream& s) const noexcept { return std::hash<c10::Stream>{}(s.unwrap()); }
};
