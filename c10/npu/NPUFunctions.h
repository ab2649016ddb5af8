#pragma once
// Devices: how many there are, which one a thread uses, waiting for one. Note [Lazy devices] explains when a
// device is really opened.

#include <acl/acl.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUMacros.h>

#include <atomic>
#include <optional>
#include <string>

namespace c10::npu {

// Note [Lazy devices]
// Each thread has a current device, 0 at first. Choosing one (set_device, guards) only writes a thread-local
// number; ACL learns of it in activate_device(), which every function here and in NPUStream, NPUEvent, the
// allocator and the task queue calls before it needs ACL's context. So autograd's worker threads, which name a device
// when they start, open none, a program that uses npu:1 alone never opens npu:0, and counting devices or asking
// for their name leaves the process free to fork.

// Number of visible devices, 0 when there is none or the libraries do not load. Opens no device and starts no
// thread.
C10_NPU_API DeviceIndex device_count() noexcept;
// The same, but throws with the reason when there is none.
C10_NPU_API DeviceIndex device_count_ensure_non_zero();

// `force` opens the device at once. Throws when the index is not that of a visible device.
C10_NPU_API void set_device(DeviceIndex device, bool force = false);
// Sets the device unless it is negative; returns the one before.
C10_NPU_API DeviceIndex ExchangeDevice(DeviceIndex device);
C10_NPU_API DeviceIndex MaybeExchangeDevice(DeviceIndex device);
// For destructors: never throws; ignores an index that is out of range.
C10_NPU_API void unchecked_set_device(DeviceIndex device) noexcept;

// Waits for all work of the current device; throws what went wrong on it.
C10_NPU_API void device_synchronize();

// Whether the device has been opened by this process.
C10_NPU_API bool hasPrimaryContext(DeviceIndex device);
C10_NPU_API std::optional<DeviceIndex> getDeviceIndexWithPrimaryContext();

// Whether any device has been opened by this process.
C10_NPU_API bool is_initialized();
// Whether this process was forked from one that had opened a device. No device can be used in it.
C10_NPU_API bool is_in_bad_fork();
// Whether the device is the simulated one. Loads the libraries; opens nothing.
C10_NPU_API bool is_simulator();

struct DeviceProperties {
  std::string name;         // SoC name
  size_t total_memory = 0;  // bytes
  int64_t cube_core_num = 0;
  int64_t vector_core_num = 0;
};
// SoC name. Opens no device. Throws when the index is not that of a visible device.
C10_NPU_API std::string get_device_name(DeviceIndex device);
// Opens the device, since only an open one tells its memory.
C10_NPU_API const DeviceProperties& get_device_properties(DeviceIndex device);
C10_NPU_API bool can_access_peer(DeviceIndex device, DeviceIndex peer);
// Lets two devices copy from each other, once for each pair: CANN wants that before the first such copy. False where
// they cannot.
C10_NPU_API bool enable_peer_access(DeviceIndex device, DeviceIndex peer);

// For atexit: waits for the work of every open device; errors of it are warnings by then. Then closes the cards,
// after which the device layer refuses work. The simulator stays open for threads that outlive the
// interpreter, and closes itself when the process ends. A second call does nothing.
C10_NPU_API void npu_shutdown() noexcept;
C10_NPU_API bool is_shut_down() noexcept;

namespace detail {
// What a thread has chosen. Every operator looks at it several times, hence the TLS model that needs no call: it
// takes static TLS, of which a library loaded at run time gets little, so this stays small.
struct ThreadDevice {
  DeviceIndex current = 0;
  DeviceIndex active = -1;      // the device whose context ACL holds for this thread
  StreamId* streams = nullptr;  // current stream of each device; null: the default streams
};
C10_NPU_API extern constinit thread_local ThreadDevice thread_device __attribute__((tls_model("initial-exec")));
C10_NPU_API extern std::atomic<bool> closed;  // cards were closed by npu_shutdown
C10_NPU_API void activate_slow(ThreadDevice& thread);
C10_NPU_API void check_device_index(DeviceIndex device);
}  // namespace detail

inline DeviceIndex current_device() { return detail::thread_device.current; }

// Makes the current device ACL's device for this thread, opening it when this is its first use. Throws in a
// forked child of a process that had opened a device.
inline DeviceIndex activate_device() {
  auto& thread = detail::thread_device;
  if (C10_UNLIKELY(thread.active != thread.current || detail::closed.load(std::memory_order_relaxed))) {
    detail::activate_slow(thread);
  }
  return thread.current;
}

}  // namespace c10::npu
