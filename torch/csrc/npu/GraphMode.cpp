// Bindings of operators that are gathered and fused: groups of torch.compile, and torch.npu's graph mode.

#include <ATen/native/npu/frame/graph/FusedGroup.h>
#include <ATen/native/npu/frame/graph/LazyGraph.h>
#include <c10/npu/NPUFunctions.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/utils/pybind.h>

#include <vector>

namespace torch::npu {
namespace {

namespace py = pybind11;
using at::native::npu::graph::FusedGroup;

// A group and its function: called with tensors it returns a tuple of tensors, or one if there is only one.
class PythonGroup {
 public:
  explicit PythonGroup(py::function function) : function_(std::move(function)) {}

  py::object call(const py::args& args) {
    c10::SmallVector<at::Tensor, 8> inputs;
    for (const auto& arg : args) {
      if (!THPVariable_Check(arg.ptr())) return function_(*args);
      inputs.push_back(THPVariable_Unpack(arg.ptr()));
    }
    std::vector<at::Tensor> outputs;
    bool replayed = false;
    {
      const py::gil_scoped_release released;
      replayed = group_.replay(inputs, outputs);
    }
    if (!replayed) {
      if (!group_.records(inputs)) return function_(*args);
      outputs = group_.record(inputs, [&] {
        const py::object result = function_(*args);
        std::vector<at::Tensor> tensors;
        if (THPVariable_Check(result.ptr())) return std::vector<at::Tensor>{THPVariable_Unpack(result.ptr())};
        for (const auto& item : py::cast<py::tuple>(result)) tensors.push_back(THPVariable_Unpack(item.ptr()));
        return tensors;
      });
    }
    if (outputs.size() == 1) return py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(outputs[0])));
    py::tuple result(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      PyTuple_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), THPVariable_Wrap(std::move(outputs[i])));
    }
    return result;
  }
  py::tuple counts() const {
    const auto [fused, plain] = group_.counts();
    return py::make_tuple(fused, plain);
  }

 private:
  py::function function_;
  FusedGroup group_;
};

using at::native::npu::graph::LazyGraph;

void enable_graph_mode() {
  c10::npu::activate_device();
  LazyGraph::instance().enable();
}

py::dict graph_counts() {
  const auto counts = LazyGraph::instance().counts();
  py::dict d;
#define COUNT(name) d[#name] = counts.name
  COUNT(graphs);
  COUNT(gathered);
  COUNT(sent);
  COUNT(fused);
  COUNT(dropped);
  COUNT(redundant);
#undef COUNT
  return d;
}

}  // namespace

void bind_graph_mode(py::module_& m) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  m.def("_npu_enableGraphMode", torch::wrap_pybind_function(&enable_graph_mode), unlocked);
  m.def("_npu_disableGraphMode", torch::wrap_pybind_function([] { LazyGraph::instance().disable(); }), unlocked);
  m.def("_npu_launchGraph", torch::wrap_pybind_function([] { LazyGraph::instance().send(); }), unlocked);
  m.def("_npu_graphCounts", &graph_counts);
  py::class_<PythonGroup>(m, "_NPUFusedGroup")
      .def(py::init<py::function>())
      .def("__call__", &PythonGroup::call)
      .def("counts", &PythonGroup::counts);
}

}  // namespace torch::npu
