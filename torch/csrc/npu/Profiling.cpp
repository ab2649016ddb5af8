// Bindings of the device layer's own profiler (aclprof*): sessions that leave a result folder, ranges and marks.

#include <ATen/record_function.h>
#include <acl_loader.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUTaskQueue.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/npu/Bindings.h>

#include <atomic>
#include <string>
#include <vector>

namespace torch::npu {
namespace {

namespace py = pybind11;
namespace acl = c10::npu::acl;

// CANN takes no longer messages.
constexpr size_t kMessage = 127;

// A stamp with a message, for as long as one call needs it.
class Stamp {
 public:
  explicit Stamp(const std::string& message) : stamp_(acl::aclprofCreateStamp()) {
    TORCH_CHECK(stamp_ != nullptr, "no mark could be made for the profile");
    const auto length = static_cast<uint32_t>(std::min(message.size(), kMessage));
    if (acl::aclprofSetStampTraceMessage(stamp_, message.c_str(), length) != ACL_SUCCESS) {
      acl::aclprofDestroyStamp(stamp_);
      TORCH_CHECK(false, "the mark '", message, "' was refused");
    }
  }
  ~Stamp() { acl::aclprofDestroyStamp(stamp_); }
  Stamp(const Stamp&) = delete;
  Stamp& operator=(const Stamp&) = delete;
  void* get() const { return stamp_; }

 private:
  void* stamp_;
};

void push(const std::string& message) {
  const Stamp stamp(message);
  NPU_CHECK(acl::aclprofPush(stamp.get()), "the range '", message, "' could not be pushed");
}

void pop() { NPU_CHECK(acl::aclprofPop(), "no range is open on this thread"); }

uint32_t start_range(const std::string& message) {
  const Stamp stamp(message);
  uint32_t range = 0;
  NPU_CHECK(acl::aclprofRangeStart(stamp.get(), &range), "the range '", message, "' could not be started");
  return range;
}

void stop_range(uint32_t range) { NPU_CHECK(acl::aclprofRangeStop(range), "range ", range, " is not open"); }

void mark(const std::string& message) {
  const Stamp stamp(message);
  NPU_CHECK(acl::aclprofMark(stamp.get()), "the mark '", message, "' was refused");
}

// Waits for what is queued and running, so that a session holds the work of its time and no other.
void finish_work() {
  for (c10::DeviceIndex i = 0; i < c10::npu::device_count(); ++i) c10::npu::drain_task_queue(i);
}

uintptr_t start(const std::string& path, std::vector<uint32_t> devices, int metrics, uint64_t data) {
  c10::npu::activate_device();
  finish_work();
  aclprofConfig* config = acl::aclprofCreateConfig(devices.data(), static_cast<uint32_t>(devices.size()),
                                                   static_cast<aclprofAicoreMetrics>(metrics), nullptr, data);
  TORCH_CHECK(config != nullptr, "the profile's configuration was refused: ", c10::npu::take_recent_error());
  aclError code = acl::aclprofInit(path.c_str(), path.size());
  if (code != ACL_SUCCESS) {
    const std::string reason = c10::npu::take_recent_error();
    acl::aclprofDestroyConfig(config);
    TORCH_CHECK(false, "torch.npu.profile cannot begin in '", path, "': ", reason, " (error ", code, ")");
  }
  code = acl::aclprofStart(config);
  if (code != ACL_SUCCESS) {
    const std::string reason = c10::npu::take_recent_error();
    acl::aclprofDestroyConfig(config);
    acl::aclprofFinalize();
    TORCH_CHECK(false, "torch.npu.profile cannot begin in '", path, "': ", reason, " (error ", code, ")");
  }
  return reinterpret_cast<uintptr_t>(config);
}

// Ends the session whatever happens; the first failure is told.
void stop(uintptr_t handle) {
  auto* config = reinterpret_cast<aclprofConfig*>(handle);
  finish_work();
  const aclError code = acl::aclprofStop(config);
  const std::string reason = code == ACL_SUCCESS ? "" : c10::npu::take_recent_error();
  acl::aclprofDestroyConfig(config);
  acl::aclprofFinalize();
  TORCH_CHECK(code == ACL_SUCCESS, "torch.npu.profile could not end well: ", reason, " (error ", code, ")");
}

// ---- the framework's operators as ranges, for end-to-end profiles

// Of one operator: whether its begin has pushed a range, which its end must take away.
struct Pushed final : at::ObserverContext {
  explicit Pushed(bool pushed) : pushed(pushed) {}
  bool pushed;
};

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  bool pushed = false;
  try {
    push(function.name());
    pushed = true;
  } catch (const std::exception&) {
    // An operator is not to fail for its mark.
  }
  return std::make_unique<Pushed>(pushed);
}

void end_operator(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  if (static_cast<Pushed*>(context)->pushed) acl::aclprofPop();
}

at::CallbackHandle mark_operators() {
  return at::addGlobalCallback(
      at::RecordFunctionCallback(begin_operator, end_operator)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
}

}  // namespace

void bind_profiling(py::module_& m) {
  // They raise, for which Python's lock must be held again: the wrapper sees to that, a call_guard would not.
  m.def("_npu_startProfile", torch::wrap_pybind_function_no_gil(start));
  m.def("_npu_stopProfile", torch::wrap_pybind_function_no_gil(stop));
  m.def("_npu_markOperators", torch::wrap_pybind_function(mark_operators));
  m.def("_npu_unmarkOperators", [](at::CallbackHandle handle) { at::removeCallback(handle); });
  m.def("_npu_rangePush", torch::wrap_pybind_function_no_gil(push));
  m.def("_npu_rangePop", torch::wrap_pybind_function_no_gil(pop));
  m.def("_npu_rangeStart", torch::wrap_pybind_function_no_gil(start_range));
  m.def("_npu_rangeStop", torch::wrap_pybind_function_no_gil(stop_range));
  m.def("_npu_mark", torch::wrap_pybind_function_no_gil(mark));
}

}  // namespace torch::npu
