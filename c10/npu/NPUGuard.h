#pragma once
// Scoped changes of the current device and stream. Mirrors c10/cuda/CUDAGuard.h.

#include <c10/core/impl/InlineDeviceGuard.h>
#include <c10/core/impl/InlineStreamGuard.h>
#include <c10/npu/impl/NPUGuardImpl.h>

#include <optional>

namespace c10::npu {

struct NPUGuard {
  explicit NPUGuard() = delete;
  explicit NPUGuard(DeviceIndex device_index) : guard_(device_index) {}
  explicit NPUGuard(Device device) : guard_(device) {}
  C10_DISABLE_COPY_AND_ASSIGN(NPUGuard);
  NPUGuard(NPUGuard&&) = delete;
  NPUGuard& operator=(NPUGuard&&) = delete;
  ~NPUGuard() = default;

  void set_device(Device device) { guard_.set_device(device); }
  void reset_device(Device device) { guard_.reset_device(device); }
  void set_index(DeviceIndex device_index) { guard_.set_index(device_index); }
  Device original_device() const { return guard_.original_device(); }
  Device current_device() const { return guard_.current_device(); }

 private:
  c10::impl::InlineDeviceGuard<c10::npu::impl::NPUGuardImpl> guard_;
};

struct OptionalNPUGuard {
  explicit OptionalNPUGuard() = default;
  explicit OptionalNPUGuard(std::optional<Device> device) : guard_(device) {}
  explicit OptionalNPUGuard(std::optional<DeviceIndex> device_index) : guard_(device_index) {}
  C10_DISABLE_COPY_AND_ASSIGN(OptionalNPUGuard);
  OptionalNPUGuard(OptionalNPUGuard&&) = delete;
  OptionalNPUGuard& operator=(OptionalNPUGuard&&) = delete;
  ~OptionalNPUGuard() = default;

  void set_device(Device device) { guard_.set_device(device); }
  void set_index(DeviceIndex device_index) { guard_.set_index(device_index); }
  std::optional<Device> original_device() const { return guard_.original_device(); }
  std::optional<Device> current_device() const { return guard_.current_device(); }
  void reset() { guard_.reset(); }

 private:
  c10::impl::InlineOptionalDeviceGuard<c10::npu::impl::NPUGuardImpl> guard_;
};

// Sets the current device to the stream's, and the current stream on it.
struct NPUStreamGuard {
  explicit NPUStreamGuard() = delete;
  explicit NPUStreamGuard(Stream stream) : guard_(stream) {}
  C10_DISABLE_COPY_AND_ASSIGN(NPUStreamGuard);
  NPUStreamGuard(NPUStreamGuard&&) = delete;
  NPUStreamGuard& operator=(NPUStreamGuard&&) = delete;
  ~NPUStreamGuard() = default;

  void reset_stream(Stream stream) { guard_.reset_stream(stream); }
  NPUStream original_stream() const { return NPUStream(NPUStream::UNCHECKED, guard_.original_stream()); }
  NPUStream current_stream() const { return NPUStream(NPUStream::UNCHECKED, guard_.current_stream()); }
  Device current_device() const { return guard_.current_device(); }
  Device original_device() const { return guard_.original_device(); }

 private:
  c10::impl::InlineStreamGuard<c10::npu::impl::NPUGuardImpl> guard_;
};

struct OptionalNPUStreamGuard {
  explicit OptionalNPUStreamGuard() = default;
  explicit OptionalNPUStreamGuard(Stream stream) : guard_(stream) {}
  explicit OptionalNPUStreamGuard(std::optional<Stream> stream) : guard_(stream) {}
  C10_DISABLE_COPY_AND_ASSIGN(OptionalNPUStreamGuard);
  OptionalNPUStreamGuard(OptionalNPUStreamGuard&&) = delete;
  OptionalNPUStreamGuard& operator=(OptionalNPUStreamGuard&&) = delete;
  ~OptionalNPUStreamGuard() = default;

  void reset_stream(Stream stream) { guard_.reset_stream(stream); }
  void reset() { guard_.reset(); }

 private:
  c10::impl::InlineOptionalStreamGuard<c10::npu::impl::NPUGuardImpl> guard_;
};

}  // namespace c10::npu
