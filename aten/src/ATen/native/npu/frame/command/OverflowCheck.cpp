// See Note [Overflow check] in OverflowCheck.h.

#include <ATen/native/npu/frame/command/OverflowCheck.h>

#include <ATen/native/npu/frame/command/Launcher.h>
#include <acl_loader.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUFunctions.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace at::native::npu {

namespace acl = c10::npu::acl;

namespace {

constexpr size_t kStatusBytes = 64;
constexpr size_t kMostKept = 65536;

struct DeviceStatus {
  void* memory = nullptr;  // of the device, kStatusBytes; kept for the process
  bool cleared = false;    // since the check was switched on
};

struct Words {
  uint32_t overflowed;
  uint32_t lost;  // of the simulator; CANN does not say what follows the first word
};

// Waits for the stream; an error of the operator before it comes back as the result.
aclError read_status(const DeviceStatus& status, aclrtStream stream, Words* words) {
  aclError code = acl::aclrtGetOverflowStatus(status.memory, kStatusBytes, stream);
  code = code == ACL_SUCCESS ? acl::aclrtSynchronizeStream(stream) : code;
  if (code == ACL_SUCCESS) {
    code = acl::aclrtMemcpy(words, sizeof *words, status.memory, sizeof *words, ACL_MEMCPY_DEVICE_TO_HOST);
  }
  if (!c10::npu::is_simulator()) {
    words->lost = 0;
  }
  return code;
}

// Products whose status counts on all streams know no switch.
aclError switch_stream(aclrtStream stream, uint32_t on) {
  if (!acl::has_function("aclrtSetStreamOverflowSwitch")) {
    return ACL_SUCCESS;
  }
  const aclError code = acl::aclrtSetStreamOverflowSwitch(stream, on);
  return code == ACL_ERROR_RT_FEATURE_NOT_SUPPORT ? ACL_SUCCESS : code;
}

struct State {
  std::mutex mutex;  // held over a launch and its look at the status
  std::map<int, DeviceStatus> devices;
  std::map<aclrtStream, int> streams;
  std::deque<Overflow> found;
  uint64_t launched = 0;
  std::shared_ptr<LaunchObserver> observer;  // while the check is on
};

State& state() {
  static State* instance = new State;  // never destroyed: threads may launch while the process ends
  return *instance;
}

bool is_status_operator(const char* ir) {
  return std::strncmp(ir, "NPU", 3) == 0 && std::strstr(ir, "FloatStatus") != nullptr;
}

class OverflowObserver final : public LaunchObserver {
 public:
  aclError execute(const Command& command, aclrtStream stream, c10::function_ref<aclError()> next) override;
};

aclError OverflowObserver::execute(const Command& command, aclrtStream stream, c10::function_ref<aclError()> next) {
  const char* ir = command.ir;
  if (is_status_operator(ir)) {
    return next();
  }
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const int device = c10::npu::current_device();
  DeviceStatus& status = s.devices[device];
  if (!status.cleared) {
    aclError code = ACL_SUCCESS;
    if (status.memory == nullptr) {
      code = acl::aclrtMalloc(&status.memory, kStatusBytes, ACL_MEM_MALLOC_HUGE_FIRST);
    }
    code = code == ACL_SUCCESS ? acl::aclrtResetOverflowStatus(stream) : code;
    if (code != ACL_SUCCESS) {
      return code;
    }
    status.cleared = true;
  }
  const uint64_t sequence = ++s.launched;
  const auto [met, fresh] = s.streams.try_emplace(stream, static_cast<int>(s.streams.size()));
  if (fresh) {
    if (const aclError code = switch_stream(stream, 1)) {
      return code;
    }
  }
  Words words = {};
  aclError code = next();
  code = code == ACL_SUCCESS ? read_status(status, stream, &words) : code;
  if (code != ACL_SUCCESS || (words.overflowed == 0 && words.lost == 0)) {
    return code;
  }
  if (words.overflowed != 0) {
    s.found.push_back({ir, 0, sequence, device, met->second});
  }
  if (words.lost != 0) {
    s.found.push_back({ir, words.lost, sequence, device, met->second});
  }
  while (s.found.size() > kMostKept) {
    s.found.pop_front();
  }
  return acl::aclrtResetOverflowStatus(stream);
}

}  // namespace

void set_overflow_check(bool on) {
  for (const char* needed : {"aclrtGetOverflowStatus", "aclrtResetOverflowStatus"}) {
    TORCH_CHECK(!on || acl::has_function(needed), "The check for overflows needs ", needed,
                ", which this release of CANN lacks; use release 7.0 or later");
  }
  State& s = state();
  const std::lock_guard lock(s.mutex);
  for (const auto& [stream, number] : s.streams) {
    switch_stream(stream, 0);  // one that is gone by now needs nothing
  }
  s.streams.clear();
  if (on) {
    s.found.clear();
    s.launched = 0;
    for (auto& [device, status] : s.devices) {
      status.cleared = false;
    }
  }
  if (on && s.observer == nullptr) {
    s.observer = std::make_shared<OverflowObserver>();
    add_launch_observer(s.observer, LaunchPlace::kOverflowCheck);
  } else if (!on && s.observer != nullptr) {
    remove_launch_observer(s.observer.get());
    s.observer.reset();
  }
}

bool overflow_check_is_on() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.observer != nullptr;
}

std::vector<Overflow> take_overflows() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  std::vector<Overflow> found(s.found.begin(), s.found.end());
  s.found.clear();
  return found;
}

}  // namespace at::native::npu
