// Bindings of graphs, under the names that torch._C has for CUDA's.

#include <ATen/npu/NPUGraph.h>
#include <ATen/npu/NPUGraphTasks.h>
#include <c10/npu/NPUGraphsC10Utils.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/npu/StreamOf.h>
#include <torch/csrc/utils/pybind.h>

namespace torch::npu {
namespace {

namespace py = pybind11;
using at::npu::NPUGraph;

at::GraphCaptureMode mode_of(const std::string& name) {
  if (name == "global") return at::GraphCaptureMode::Global;
  if (name == "thread_local") return at::GraphCaptureMode::ThreadLocal;
  if (name == "relaxed") return at::GraphCaptureMode::Relaxed;
  TORCH_CHECK(false, "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got ", name);
}

}  // namespace

void bind_graphs(py::module_& m) {
  py::class_<NPUGraph, std::shared_ptr<NPUGraph>>(m, "_NPUGraph")
      .def(py::init([](bool keep_graph) {
             return std::shared_ptr<NPUGraph>(new NPUGraph(keep_graph), [](NPUGraph* graph) {
               const py::gil_scoped_release release;
               delete graph;
             });
           }),
           py::arg("keep_graph") = false)
      .def("capture_begin",
           torch::wrap_pybind_function_no_gil(
               [](NPUGraph& graph, std::optional<c10::MempoolId_t> pool, const std::string& capture_error_mode) {
                 graph.capture_begin(pool.value_or(c10::MempoolId_t{0, 0}), mode_of(capture_error_mode));
               }),
           py::arg("pool") = py::none(), py::arg("capture_error_mode") = "global")
      .def("capture_end", torch::wrap_pybind_function_no_gil(&NPUGraph::capture_end))
      .def("instantiate", torch::wrap_pybind_function_no_gil(&NPUGraph::instantiate))
      .def("register_generator_state", torch::wrap_pybind_function([](NPUGraph& graph, const at::Generator& generator) {
             graph.register_generator_state(generator);
           }),
           py::arg("generator"))
      .def("replay", torch::wrap_pybind_function_no_gil(&NPUGraph::replay))
      .def("reset", torch::wrap_pybind_function_no_gil(&NPUGraph::reset))
      .def("pool", torch::wrap_pybind_function_no_gil(&NPUGraph::pool))
      .def("enable_debug_mode", torch::wrap_pybind_function_no_gil(&NPUGraph::enable_debug_mode))
      .def("debug_dump", torch::wrap_pybind_function_no_gil(&NPUGraph::debug_dump), py::arg("debug_path"))
      .def("_is_capturing", &NPUGraph::is_capturing);

  m.def("_npu_graphTaskGroupBegin", torch::wrap_pybind_function_no_gil([](int64_t id, int64_t device) {
          at::npu::graph_task_group_begin(stream_of(id, device));
        }));
  m.def("_npu_graphTaskGroupEnd", torch::wrap_pybind_function_no_gil([](int64_t id, int64_t device) {
          return reinterpret_cast<uintptr_t>(at::npu::graph_task_group_end(stream_of(id, device)));
        }));
  m.def("_npu_graphTaskUpdateBegin",
        torch::wrap_pybind_function_no_gil([](int64_t id, int64_t device, uintptr_t handle) {
          at::npu::graph_task_update_begin(stream_of(id, device), reinterpret_cast<void*>(handle));
        }));
  m.def("_npu_graphTaskUpdateEnd", torch::wrap_pybind_function_no_gil([](int64_t id, int64_t device) {
          at::npu::graph_task_update_end(stream_of(id, device));
        }));
  m.def("_npu_graph_pool_handle", torch::wrap_pybind_function(&at::npu::graph_pool_handle));
  m.def("_npu_isCurrentStreamCapturing", torch::wrap_pybind_function([]() {
          return c10::npu::currentStreamCaptureStatusMayInitCtx() != c10::npu::CaptureStatus::None;
        }));
}

}  // namespace torch::npu
