// Bindings of streams. torch.npu.Stream and Event are Python subclasses of torch.Stream and torch.Event, which reach
// the device through the device guard; here is what those do not offer.

#include <ATen/npu/Sleep.h>
#include <acl_loader.h>
#include <c10/npu/NPUEvent.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUStream.h>
#include <c10/npu/NPUTaskQueue.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/npu/StreamOf.h>

#include <memory>
#include <utility>

namespace torch::npu {
namespace {

namespace py = pybind11;
using c10::DeviceIndex;
using c10::npu::NPUStream;

const c10::npu::NPUEvent& event_of(uintptr_t event_id) {
  return *reinterpret_cast<const c10::npu::NPUEvent*>(event_id);
}

py::tuple pack(const NPUStream& stream) {
  const auto data = stream.pack3();
  return py::make_tuple(data.stream_id, static_cast<int64_t>(data.device_index),
                        static_cast<int64_t>(data.device_type));
}

uintptr_t handle(const NPUStream& stream) { return reinterpret_cast<uintptr_t>(stream.stream()); }

void set_stream(int64_t stream_id, int64_t device_index, int64_t device_type) {
  const auto type = static_cast<c10::DeviceType>(device_type);
  auto stream = NPUStream::unpack3(stream_id, static_cast<DeviceIndex>(device_index), type);
  if (c10::npu::current_device() != stream.device_index()) {
    c10::npu::set_device(stream.device_index());
  }
  c10::npu::setCurrentNPUStream(stream);
}

// A flag between graphs and other work, see torch.npu.ExternalEvent. It is made on the device that first uses it.
class ExternalEvent {
 public:
  void record(const NPUStream& stream) { launch(stream, "aclrtRecordEvent", &c10::npu::acl::aclrtRecordEvent); }
  void reset(const NPUStream& stream) { launch(stream, "aclrtResetEvent", &c10::npu::acl::aclrtResetEvent); }
  void wait(const NPUStream& stream) {
    launch(stream, "aclrtStreamWaitEvent",
           [](aclrtEvent event, aclrtStream on) { return c10::npu::acl::aclrtStreamWaitEvent(on, event); });
  }

 private:
  // Tasks that wait in the queue hold it, too.
  struct Handle {
    aclrtEvent event = nullptr;
    ~Handle() {
      if (event != nullptr && !c10::npu::is_shut_down() && !c10::npu::is_in_bad_fork()) {
        NPU_CHECK_WARN(c10::npu::acl::aclrtDestroyEvent(event));
      }
    }
  };

  template <class F>
  void launch(const NPUStream& stream, const char* name, F call) {
    const c10::npu::NPUGuard guard(stream.device_index());
    if (!handle_) {
      constexpr uint32_t kExternal = 0x20;  // ACL_EVENT_EXTERNAL
      c10::npu::activate_device();
      auto made = std::make_shared<Handle>();
      NPU_CHECK(c10::npu::acl::aclrtCreateEventExWithFlag(&made->event, kExternal));
      handle_ = std::move(made);
    }
    c10::npu::launch(stream, name, [held = handle_, call](aclrtStream on) { return call(held->event, on); });
  }

  std::shared_ptr<Handle> handle_;
};

}  // namespace

void bind_streams(py::module_& m) {
  const auto index = [](int64_t i) { return static_cast<DeviceIndex>(i); };
  m.def("_npu_getCurrentStream",
        torch::wrap_pybind_function([index](int64_t i) { return pack(c10::npu::getCurrentNPUStream(index(i))); }));
  m.def("_npu_getDefaultStream",
        torch::wrap_pybind_function([index](int64_t i) { return pack(c10::npu::getDefaultNPUStream(index(i))); }));
  m.def("_npu_getCurrentRawStream",
        torch::wrap_pybind_function([index](int64_t i) { return handle(c10::npu::getCurrentNPUStream(index(i))); }));
  m.def("_npu_getStreamFromExternal", torch::wrap_pybind_function([index](uintptr_t pointer, int64_t i) {
          return pack(c10::npu::getStreamFromExternal(reinterpret_cast<aclrtStream>(pointer), index(i)));
        }));
  m.def("_npu_setStream", torch::wrap_pybind_function(&set_stream), py::arg("stream_id"), py::arg("device_index"),
        py::arg("device_type"));
  m.def("_npu_streamHandle",
        torch::wrap_pybind_function([](int64_t id, int64_t device) { return handle(stream_of(id, device)); }));
  m.def("_npu_streamPriority",
        torch::wrap_pybind_function([](int64_t id, int64_t device) { return stream_of(id, device).priority(); }));
  // torch.Event's event_id is the device guard's NPUEvent, see c10/npu/impl/NPUGuardImpl.cpp.
  m.def("_npu_eventHandle", [](uintptr_t event_id) { return reinterpret_cast<uintptr_t>(event_of(event_id).event()); });
  // torch.Event.elapsed_time refuses subclasses of torch.Event.
  m.def("_npu_eventElapsedTime", torch::wrap_pybind_function([](uintptr_t start, uintptr_t end) {
          return static_cast<double>(event_of(start).elapsed_time(event_of(end)));
        }));
  const auto on = [](void (ExternalEvent::*act)(const NPUStream&)) {
    return torch::wrap_pybind_function_no_gil(
        [act](ExternalEvent& event, int64_t id, int64_t device) { (event.*act)(stream_of(id, device)); });
  };
  py::class_<ExternalEvent>(m, "_NPUExternalEvent")
      .def(py::init<>())
      .def("record", on(&ExternalEvent::record))
      .def("reset", on(&ExternalEvent::reset))
      .def("wait", on(&ExternalEvent::wait));
  m.def("_npu_sleep", torch::wrap_pybind_function_no_gil([](int64_t cycles) { at::npu::sleep(cycles); }));
  m.def("_npu_streamPriorityRange", torch::wrap_pybind_function([]() {
          const auto [least, greatest] = NPUStream::priority_range();
          return py::make_tuple(least, greatest);
        }));
}

}  // namespace torch::npu
