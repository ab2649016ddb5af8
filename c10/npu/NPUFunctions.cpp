// Opening, choosing, waiting for and closing devices; forks.

#include <c10/npu/NPUFunctions.h>

#include <acl/acl_op_compiler.h>
#include <acl_loader.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUOptions.h>
#include <c10/npu/NPUTaskQueue.h>
#include <c10/npu/impl/Exit.h>
#include <c10/npu/impl/Interrupt.h>
#include <c10/npu/impl/Trace.h>
#include <c10/util/irange.h>

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace c10::npu {

namespace {

struct DeviceCount {
  DeviceIndex count = 0;
  std::string reason;  // why it is 0
};

DeviceCount count_devices() noexcept {
  DeviceCount result;
  try {
    uint32_t count = 0;
    const aclError code = acl::aclrtGetDeviceCount(&count);
    if (code != ACL_SUCCESS) {
      result.reason = c10::str("aclrtGetDeviceCount failed, error code is ", code, " (", error_name(code), "). ",
                               take_recent_error());
    } else if (count == 0) {
      const char* visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
      result.reason = visible == nullptr
                          ? "the driver reports no device"
                          : c10::str("ASCEND_RT_VISIBLE_DEVICES='", visible,
                                     "' names none that is there; write device numbers from 0, separated by commas");
    }
    result.count = static_cast<DeviceIndex>(std::min<uint32_t>(count, C10_COMPILE_TIME_MAX_NPUS));
  } catch (const c10::Error& error) {
    result.reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    result.reason = error.what();
  }
  return result;
}

const DeviceCount& counted_devices() noexcept {
  static const DeviceCount counted = count_devices();
  return counted;
}

// What this process has opened. Never destroyed: threads may outlive static destruction.
struct Runtime {
  std::mutex mutex;
  bool keeps_precision = false;  // see keep_precision()
  bool acl_is_ours = false;      // aclInit was called here, so aclFinalize is due here
  std::atomic<bool> initialized{false};
  std::atomic<bool> bad_fork{false};
  std::atomic<bool> shut_down{false};
  std::atomic<int> threads{0};  // that have used a device
  std::array<std::atomic<bool>, C10_COMPILE_TIME_MAX_NPUS> opened{};
  std::array<DeviceProperties, C10_COMPILE_TIME_MAX_NPUS> properties;
  std::array<std::once_flag, C10_COMPILE_TIME_MAX_NPUS> properties_read;
};

Runtime& runtime() noexcept {
  static Runtime* instance = new Runtime;
  return *instance;
}

void after_fork_in_child() {
  runtime().bad_fork.store(true);
  detail::thread_device.active = -1;
}

// Calls aclInit, once. The caller holds the lock.
void initialize_acl(Runtime& r) {
  if (r.initialized.load()) {
    return;
  }
  const aclError code = acl::aclInit(options().acl_dump_data ? "acl.json" : nullptr);
  if (code != ACL_ERROR_REPEAT_INITIALIZE && code != ACL_ERROR_RT_REPEATED_INIT) {
    NPU_CHECK(code, "AscendCL could not be initialised");
    r.acl_is_ours = true;
  }
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  r.initialized.store(true);
}

void saturate_results(DeviceIndex device) {
  TORCH_CHECK(acl::has_function("aclrtSetDeviceSatMode"),
              "INF_NAN_MODE_ENABLE=0: this CANN has no aclrtSetDeviceSatMode; leave the variable unset");
  NPU_CHECK(acl::aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_SATURATION), "npu:", static_cast<int>(device),
            " does not take saturation mode, which INF_NAN_MODE_ENABLE=0 asks for");
}

// Whether the cube unit multiplies fp32: from Ascend910B1 on, whose names are Ascend910B1, Ascend910_9391, Ascend950...
bool cube_has_fp32(const std::string& chip) {
  constexpr size_t kDigit = 10;  // behind "Ascend910B"
  return is_simulator() || chip.starts_with("Ascend910_9") || chip.starts_with("Ascend95") ||
         (chip.starts_with("Ascend910B") && chip.size() > kDigit && std::isdigit(chip[kDigit]) != 0);
}

// CANN's default, allow_fp32_to_fp16, multiplies fp32 in fp16. A chip that needs not do so is told to keep what it
// gets.
void keep_precision(DeviceIndex device) {
  if (acl::has_function("aclSetCompileopt") && cube_has_fp32(get_device_name(device))) {
    NPU_CHECK(acl::aclSetCompileopt(ACL_PRECISION_MODE, "must_keep_origin_dtype"), "ACL_PRECISION_MODE");
  }
}

void npuSynchronizeDevice(int32_t timeout_ms) {
  static const bool bounded = acl::has_function("aclrtSynchronizeDeviceWithTimeout");
  if (bounded) {
    NPU_CHECK(impl::wait_in_slices(timeout_ms, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
                                   [](int32_t ms) { return acl::aclrtSynchronizeDeviceWithTimeout(ms); }));
  } else {
    NPU_CHECK(acl::aclrtSynchronizeDevice());
  }
  impl::forget_interrupt();
}

}  // namespace

namespace detail {

std::atomic<bool> closed{false};

constinit thread_local ThreadDevice thread_device;

void check_device_index(DeviceIndex device) {
  const DeviceIndex count = device_count_ensure_non_zero();
  TORCH_CHECK(
      device >= 0 && device < count, "Invalid npu device index ", static_cast<int>(device),
      ": the index must be from 0 to ", static_cast<int>(count) - 1,
      is_simulator() ? ". The simulated host has as many devices as ASCEND_SIM_DEVICE_COUNT says, 1 by default" : "");
}

void activate_slow(ThreadDevice& thread) {
  Runtime& r = runtime();
  TORCH_CHECK(
      !r.bad_fork.load(),
      "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must use the 'spawn' "
      "start method");
  TORCH_CHECK(!closed.load(), "The NPU was shut down: the process is exiting");
  check_device_index(thread.current);
  options();  // a wrong switch is an error before anything is opened
  {
    const std::lock_guard lock(r.mutex);
    initialize_acl(r);
  }
  NPU_CHECK(acl::aclrtSetDevice(thread.current), "npu:", static_cast<int>(thread.current), " could not be opened");
  {
    // Before another thread takes the device for open and launches.
    const std::lock_guard lock(r.mutex);
    auto& opened = r.opened[static_cast<size_t>(thread.current)];
    if (options().saturates && !opened.load()) {
      saturate_results(thread.current);
    }
    if (!r.keeps_precision) {
      keep_precision(thread.current);
      r.keeps_precision = true;
    }
    opened.store(true);
  }
  if (thread.active < 0) {
    r.threads.fetch_add(1);
  }
  thread.active = thread.current;
}

}  // namespace detail

DeviceIndex device_count() noexcept { return counted_devices().count; }

DeviceIndex device_count_ensure_non_zero() {
  const auto& counted = counted_devices();
  TORCH_CHECK(counted.count > 0, "No NPU is available: ", counted.reason);
  return counted.count;
}

void set_device(DeviceIndex device, bool force) {
  auto& thread = detail::thread_device;
  if (C10_UNLIKELY(thread.current != device)) {
    detail::check_device_index(device);
    thread.current = device;
  }
  if (force) {
    activate_device();
  }
}

DeviceIndex ExchangeDevice(DeviceIndex device) {
  auto& thread = detail::thread_device;
  const DeviceIndex previous = thread.current;
  if (C10_UNLIKELY(previous != device)) {
    detail::check_device_index(device);
    thread.current = device;
  }
  return previous;
}

DeviceIndex MaybeExchangeDevice(DeviceIndex device) { return device < 0 ? current_device() : ExchangeDevice(device); }

void unchecked_set_device(DeviceIndex device) noexcept {
  if (device >= 0 && device < device_count()) {
    detail::thread_device.current = device;
  }
}

void impl::synchronize_untraced() {
  const DeviceIndex device = activate_device();
  drain_task_queue(device);
  npuSynchronizeDevice(options().sync_timeout_ms);
  detail::drop_finished_tasks(device);
  impl::stay_if_exiting();
}

void device_synchronize() {
  impl::synchronize_untraced();
  impl::trace([](auto& to) { to.trace_gpu_device_synchronization(DeviceType::PrivateUse1); });
}

bool hasPrimaryContext(DeviceIndex device) {
  detail::check_device_index(device);
  return runtime().opened[static_cast<size_t>(device)].load();
}

std::optional<DeviceIndex> getDeviceIndexWithPrimaryContext() {
  if (!is_initialized()) {
    return std::nullopt;
  }
  const auto& opened = runtime().opened;
  if (const DeviceIndex device = current_device(); opened[static_cast<size_t>(device)].load()) {
    return device;
  }
  for (const auto device : c10::irange(device_count())) {
    if (opened[static_cast<size_t>(device)].load()) {
      return device;
    }
  }
  return std::nullopt;
}

bool is_initialized() { return runtime().initialized.load(); }

bool is_in_bad_fork() { return runtime().bad_fork.load(); }

bool is_simulator() { return acl::library_kind() == acl::LibraryKind::Simulator; }

std::string get_device_name(DeviceIndex device) {
  detail::check_device_index(device);
  static const bool known = acl::has_function("aclrtGetSocName");
  const char* name = known ? acl::aclrtGetSocName() : nullptr;
  if (known && name == nullptr && !is_initialized()) {
    const NPUGuard guard(device);
    activate_device();
    name = acl::aclrtGetSocName();
  }
  return name != nullptr ? name : "Ascend";
}

const DeviceProperties& get_device_properties(DeviceIndex device) {
  detail::check_device_index(device);
  auto& properties = runtime().properties[static_cast<size_t>(device)];
  std::call_once(runtime().properties_read[static_cast<size_t>(device)], [&] {
    const NPUGuard guard(device);
    activate_device();
    size_t free = 0;
    NPU_CHECK(acl::aclrtGetMemInfo(ACL_HBM_MEM, &free, &properties.total_memory));
    properties.name = get_device_name(device);
    if (acl::has_function("aclGetDeviceCapability")) {
      // A product that does not tell one of them leaves it at 0.
      const auto ask = [device](aclDeviceInfo what, int64_t& value) {
        int64_t told = 0;
        if (acl::aclGetDeviceCapability(static_cast<uint32_t>(device), what, &told) == ACL_SUCCESS) {
          value = told;
        } else {
          take_recent_error();
        }
      };
      ask(ACL_DEVICE_INFO_AI_CORE_NUM, properties.cube_core_num);
      ask(ACL_DEVICE_INFO_VECTOR_CORE_NUM, properties.vector_core_num);
    }
  });
  return properties;
}

bool can_access_peer(DeviceIndex device, DeviceIndex peer) {
  detail::check_device_index(device);
  detail::check_device_index(peer);
  if (device == peer) {
    return false;
  }
  const NPUGuard guard(device);
  activate_device();
  int32_t can = 0;
  NPU_CHECK(acl::aclrtDeviceCanAccessPeer(&can, device, peer));
  return can != 0;
}

bool enable_peer_access(DeviceIndex device, DeviceIndex peer) {
  enum Peers : uint8_t { kUnknown, kReached, kApart };
  static std::array<std::array<std::atomic<uint8_t>, C10_COMPILE_TIME_MAX_NPUS>, C10_COMPILE_TIME_MAX_NPUS> known{};
  if (device > peer) {
    std::swap(device, peer);
  }
  if (device == peer) {
    return true;
  }
  auto& state = known[static_cast<size_t>(device)][static_cast<size_t>(peer)];
  if (state.load(std::memory_order_acquire) == kUnknown) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (state.load() == kUnknown) {
      bool can = true;
      for (const auto& [from, to] : {std::pair(device, peer), std::pair(peer, device)}) {
        const NPUGuard guard(from);
        activate_device();
        int32_t reaches = 0;
        can = can && acl::aclrtDeviceCanAccessPeer(&reaches, from, to) == ACL_SUCCESS && reaches != 0 &&
              acl::aclrtDeviceEnablePeerAccess(to, 0) == ACL_SUCCESS;
      }
      if (!can) {
        take_recent_error();  // copies go through the host then
      }
      state.store(can ? kReached : kApart, std::memory_order_release);
    }
  }
  return state.load(std::memory_order_acquire) == kReached;
}

bool is_shut_down() noexcept { return runtime().shut_down.load(); }

void npu_shutdown() noexcept {
  Runtime& r = runtime();
  if (r.shut_down.exchange(true) || r.bad_fork.load() || !r.initialized.load()) {
    return;
  }
  try {
    if (const int others = r.threads.load() - 1; others > 0) {
      impl::begin_exit(others);
    }
    if (const std::string left_behind = stop_task_queues(); !left_behind.empty()) {
      TORCH_WARN("An error was left behind when the process exited: ", left_behind);
    }
    const bool card = !is_simulator();
    // Nobody can look at what is computed now, and who has asked for an end once need not wait.
    const int32_t patience_ms = impl::was_interrupted() ? 1000 : 60 * 1000;
    const int32_t timeout_ms =
        options().sync_timeout_ms > 0 ? std::min(options().sync_timeout_ms, patience_ms) : patience_ms;
    for (const auto device : c10::irange(device_count())) {
      if (!r.opened[static_cast<size_t>(device)].load()) {
        continue;
      }
      set_device(device, /*force=*/true);
      try {
        npuSynchronizeDevice(timeout_ms);
      } catch (const c10::Error& error) {
        TORCH_WARN("Work was left unfinished or failed when the process exited: ", error.what_without_backtrace());
      }
      if (card) {
        NPU_CHECK_WARN(acl::aclrtResetDevice(device));
      }
    }
    impl::end_exit();
    if (card) {
      detail::closed.store(true);
      if (r.acl_is_ours) {
        NPU_CHECK_WARN(acl::aclFinalize());
      }
    }
  } catch (const std::exception& error) {
    TORCH_WARN("Shutting the NPU down failed: ", error.what());
  }
}

}  // namespace c10::npu
