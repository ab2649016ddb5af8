// torch._C._distributed_c10d.ProcessGroupHCCL. Upstream's classes that it derives from are bound by libtorch_python.

#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/HCCLRecorder.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupHCCL.hpp>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

namespace torch::npu {
namespace {

namespace py = pybind11;
using c10d::ProcessGroupHCCL;
using Options = ProcessGroupHCCL::Options;

// Holds a group; its end waits for threads, which may want the interpreter's lock.
template <class T>
class WithoutLock {
 public:
  WithoutLock() = default;
  WithoutLock(c10::intrusive_ptr<T> held) : held_(std::move(held)) {}
  explicit WithoutLock(T* raw) : held_(c10::intrusive_ptr<T>::unsafe_steal_from_new(raw)) {}
  WithoutLock(const WithoutLock&) = default;
  WithoutLock(WithoutLock&&) noexcept = default;
  WithoutLock& operator=(const WithoutLock&) = default;
  WithoutLock& operator=(WithoutLock&&) noexcept = default;
  ~WithoutLock() {
    if (held_ && PyGILState_Check()) {
      const py::gil_scoped_release release;
      held_.reset();
    }
  }
  T* get() const noexcept { return held_.get(); }
  T& operator*() const { return *held_; }
  T* operator->() const { return held_.get(); }
  operator c10::intrusive_ptr<T>() const { return held_; }

 private:
  c10::intrusive_ptr<T> held_;
};

}  // namespace
}  // namespace torch::npu

PYBIND11_DECLARE_HOLDER_TYPE(T, torch::npu::WithoutLock<T>, true)

namespace torch::npu {
namespace {

c10::intrusive_ptr<Options> copy_of(const Options& options) {
  auto copy = c10::make_intrusive<Options>(options.is_high_priority_stream);
  copy->timeout = options.timeout;
  copy->group_name = options.group_name;
  copy->group_desc = options.group_desc;
  copy->global_ranks_in_group = options.global_ranks_in_group;
  copy->hccl_config = options.hccl_config;
  return copy;
}

}  // namespace

void bind_distributed(py::module_& m) {
  // A build of upstream without torch.distributed has nothing to derive from.
  if (!py::hasattr(m, "_c10d_init")) return;
  auto c10d_module = py::module_::import("torch._C._distributed_c10d");

  auto group = py::class_<ProcessGroupHCCL, c10d::Backend, WithoutLock<ProcessGroupHCCL>>(
      c10d_module, "ProcessGroupHCCL",
      "ProcessGroupHCCL(store, rank, size, options=None): collectives of npu tensors, through HCCL. Made by "
      "torch.distributed.init_process_group(\"hccl\").");
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(
      group, "Options",
      "Options of ProcessGroupHCCL: is_high_priority_stream, hccl_config (a dict of names; of no effect), and those of "
      "every back end.")
      .def(py::init<bool>(), py::arg("is_high_priority_stream") = false)
      .def_readwrite("is_high_priority_stream", &Options::is_high_priority_stream)
      .def_readwrite("hccl_config", &Options::hccl_config)
      .def("__copy__", &copy_of)
      .def("__deepcopy__", [](const Options& self, const py::object&) { return copy_of(self); }, py::arg("memo"));

  group
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       c10::intrusive_ptr<Options> options) {
             if (!options) options = c10::make_intrusive<Options>();
             const py::gil_scoped_release release;
             return WithoutLock<ProcessGroupHCCL>(
                 c10::make_intrusive<ProcessGroupHCCL>(store, rank, size, std::move(options)));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options") = c10::intrusive_ptr<Options>())
      .def(py::init(
               [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout) {
                 auto options = c10::make_intrusive<Options>();
                 options->timeout = timeout;
                 const py::gil_scoped_release release;
                 return WithoutLock<ProcessGroupHCCL>(
                     c10::make_intrusive<ProcessGroupHCCL>(store, rank, size, std::move(options)));
               }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"))
      .def(
          "get_hccl_comm_name", [](ProcessGroupHCCL& self, const py::object&) { return self.commName(); },
          py::arg("rank") = py::none(), "The communicator's name, as fused operators take it.")
      .def("_has_hccl_comm", &ProcessGroupHCCL::hasComm, py::arg("name"))
      .def(
          "perform_nocolor_split", [](ProcessGroupHCCL&, const py::object&) {}, py::arg("device"),
          "Does nothing: a subgroup's communicator needs only its own ranks.")
      .def("_set_default_timeout", &ProcessGroupHCCL::setTimeout, py::arg("timeout"))
      .def_property_readonly(
          "options",
          [](ProcessGroupHCCL& self) { return c10::static_intrusive_pointer_cast<Options>(self.getBackendOptions()); },
          "The options that the group was made with.");

  m.def(
      "_hccl_recorder", [](bool only_active) { return py::bytes(c10d::hccl_recorder_content(only_active)); },
      py::arg("only_active") = false);
}

}  // namespace torch::npu
