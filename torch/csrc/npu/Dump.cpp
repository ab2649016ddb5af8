// Bindings of what watches operators on the device: the dump of operands, and the check for overflows.

#include <ATen/native/npu/frame/command/OverflowCheck.h>
#include <acl_loader.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUOptions.h>
#include <c10/npu/NPUTaskQueue.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/npu/Bindings.h>

#include <string>

namespace torch::npu {
namespace {

namespace py = pybind11;
namespace acl = c10::npu::acl;

// Operators are dumped, or not, by what is configured when they reach the device: first deliver those called before.
void deliver_what_is_queued() {
  for (int i = 0; i < c10::npu::device_count(); ++i) {
    c10::npu::drain_task_queue(static_cast<c10::DeviceIndex>(i));
  }
}

void init_dump() {
  c10::npu::activate_device();
  NPU_CHECK(acl::aclmdlInitDump(), "the dump could not be initialised");
}

void set_dump(const std::string& path) {
  c10::npu::activate_device();
  deliver_what_is_queued();
  NPU_CHECK(acl::aclmdlSetDump(path.c_str()), "the dump configuration '", path, "' was refused");
}

void finalize_dump() {
  c10::npu::activate_device();
  NPU_CHECK(acl::aclmdlFinalizeDump(), "the dump could not be ended");
}

py::list take_overflows() {
  std::vector<at::native::npu::Overflow> found;
  {
    py::gil_scoped_release no_gil;
    deliver_what_is_queued();
    found = at::native::npu::take_overflows();
  }
  py::list list;
  for (const auto& overflow : found) {
    py::dict d;
    d["op_type"] = overflow.op_type;
    d["op_name"] = overflow.op_type + "_" + std::to_string(overflow.sequence);
    d["task_id"] = overflow.sequence;
    d["stream_id"] = overflow.stream;
    d["device"] = overflow.device;
    d["sequence"] = overflow.sequence;
    d["kind"] = overflow.lost > 0 ? "underflow" : "overflow";
    d["lost"] = overflow.lost;
    list.append(d);
  }
  return list;
}

void set_overflow_check(bool on) {
  deliver_what_is_queued();
  at::native::npu::set_overflow_check(on);
}

}  // namespace

void bind_dump(py::module_& m) {
  m.def("_npu_initDump", torch::wrap_pybind_function_no_gil(&init_dump));
  m.def("_npu_setDump", torch::wrap_pybind_function_no_gil(&set_dump));
  m.def("_npu_finalizeDump", torch::wrap_pybind_function_no_gil(&finalize_dump));
  m.def("_npu_dumpsFromTheStart", [] { return c10::npu::options().acl_dump_data; });
  m.def("_npu_set_overflow_check", torch::wrap_pybind_function_no_gil(&set_overflow_check));
  m.def("_npu_overflow_check_is_on", [] { return at::native::npu::overflow_check_is_on(); });
  m.def("_npu_take_overflows", torch::wrap_pybind_function(&take_overflows));
}

}  // namespace torch::npu
