// Bindings of what is about operators as a whole: CANN's compile options, operators that fell back to the CPU, and the
// simulator's counters of copies and launches.

#include <ATen/native/npu/frame/command/CompileMode.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OperatorGraphs.h>
#include <ATen/native/npu/frame/registration/Fallback.h>
#include <ATen/npu/TorchvisionOnCpu.h>
#include <acl/acl_op_compiler.h>
#include <acl/acl_simulator.h>
#include <acl_loader.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUTaskQueue.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/npu/Bindings.h>

#include <pybind11/stl.h>

#include <array>
#include <string>

namespace torch::npu {
namespace {

namespace py = pybind11;

struct NamedOption {
  const char* name;
  aclCompileOpt option;
};

constexpr std::array kOptions = {
    NamedOption{"ACL_PRECISION_MODE", ACL_PRECISION_MODE},
    NamedOption{"ACL_OP_SELECT_IMPL_MODE", ACL_OP_SELECT_IMPL_MODE},
    NamedOption{"ACL_OPTYPELIST_FOR_IMPLMODE", ACL_OPTYPELIST_FOR_IMPLMODE},
    NamedOption{"ACL_OP_DEBUG_LEVEL", ACL_OP_DEBUG_LEVEL},
    NamedOption{"ACL_DEBUG_DIR", ACL_DEBUG_DIR},
    NamedOption{"ACL_OP_COMPILER_CACHE_MODE", ACL_OP_COMPILER_CACHE_MODE},
    NamedOption{"ACL_OP_COMPILER_CACHE_DIR", ACL_OP_COMPILER_CACHE_DIR},
    NamedOption{"ACL_OP_JIT_COMPILE", ACL_OP_JIT_COMPILE},
    NamedOption{"ACL_ALLOW_HF32", ACL_ALLOW_HF32},
};

void set_option(const std::string& name, const std::string& value) {
  for (const auto& known : kOptions) {
    if (name == known.name) {
      const auto device = c10::npu::activate_device();
      // What was called before the option changes is compiled with the old one.
      c10::npu::drain_task_queue(device);
      NPU_CHECK(c10::npu::acl::aclSetCompileopt(known.option, value.c_str()), name, "=", value);
      return;
    }
  }
  TORCH_CHECK_VALUE(false, "No such compile option: ", name);
}

void set_fuzzy_compile(bool on) {
  c10::npu::activate_device();
  at::native::npu::set_fuzzy_compile(on);
}

void set_aoe(const std::string& folder) {
  c10::npu::drain_task_queue(c10::npu::activate_device());
  at::native::npu::write_operator_graphs(folder);
}

// What the simulated device answers, as JSON; None on a card.
py::object tune_graph(const std::string& file, int milliseconds) {
  if (!c10::npu::acl::has_function("aclsimTuneGraph")) return py::none();
  c10::npu::drain_task_queue(c10::npu::activate_device());
  const char* text = nullptr;
  {
    const py::gil_scoped_release no_gil;
    text = c10::npu::acl::aclsimTuneGraph(file.c_str(), milliseconds);
  }
  TORCH_CHECK(text != nullptr, c10::npu::acl::aclGetRecentErrMsg());
  return py::str(text);
}

py::object knowledge() {
  c10::npu::activate_device();
  if (!c10::npu::acl::has_function("aclsimKnowledge")) return py::none();
  return py::str(c10::npu::acl::aclsimKnowledge());
}

py::object simulator_counters(int device) {
  if (!c10::npu::acl::has_function("aclsimGetCounters")) {
    return py::none();
  }
  aclsimCounters counters{};
  NPU_CHECK(c10::npu::acl::aclsimGetCounters(device, &counters));
  py::dict d;
#define COUNTER(name) d[#name] = counters.name
  COUNTER(host_to_device_copies);
  COUNTER(host_to_device_bytes);
  COUNTER(device_to_host_copies);
  COUNTER(device_to_host_bytes);
  COUNTER(device_to_device_copies);
  COUNTER(device_to_device_bytes);
  COUNTER(ops_launched);
  COUNTER(ops_run_by_caller);
  COUNTER(ops_compiled);
  COUNTER(memory_used);
  COUNTER(memory_peak);
  COUNTER(memory_total);
  COUNTER(scratch_used);
  COUNTER(scratch_peak);
  COUNTER(relayouts);
  COUNTER(ops_cached);
  COUNTER(busy_ns);
#undef COUNTER
  return d;
}

}  // namespace

void bind_compile(py::module_& m) {
  m.def("_npu_setOption", torch::wrap_pybind_function(&set_option));
  m.def("_npu_setFuzzyCompile", torch::wrap_pybind_function(&set_fuzzy_compile));
  m.def("_npu_setAoe", torch::wrap_pybind_function(&set_aoe));
  m.def("_npu_tuneGraph", torch::wrap_pybind_function(&tune_graph));
  m.def("_npu_knowledge", torch::wrap_pybind_function(&knowledge));
  m.def("_npu_hasOperator",
        torch::wrap_pybind_function([](const std::string& ir) { return !at::native::npu::lacks(ir.c_str()); }));
  m.def("_npu_fallbackStats", torch::wrap_pybind_function([]() { return at::native::npu::fallback_stats(); }));
  m.def("_npu_resetFallbackStats", torch::wrap_pybind_function([]() { at::native::npu::reset_fallback_stats(); }));
  m.def("_npu_provideTorchvisionOnCpu", torch::wrap_pybind_function(&at::npu::provide_torchvision_on_cpu));
  m.def("_npu_simulatorCounters", torch::wrap_pybind_function(&simulator_counters));
}

}  // namespace torch::npu
