// The extension module torch.npu._C. It has no names of its own: importing it fills torch._C.

#include <torch/csrc/npu/Bindings.h>

PYBIND11_MODULE(_C, m) {
  m.doc() = "Adds the bindings of the NPU device layer (torch._C._npu_*) when imported.";
  auto torch_c = pybind11::module_::import("torch._C");
  torch::npu::bind_device(torch_c);
  torch::npu::bind_autograd(torch_c);
  torch::npu::bind_streams(torch_c);
  torch::npu::bind_memory(torch_c);
  torch::npu::bind_memory_snapshot(torch_c);
  torch::npu::bind_mem_pool(torch_c);
  torch::npu::bind_graphs(torch_c);
  torch::npu::bind_compile(torch_c);
  torch::npu::bind_dump(torch_c);
  torch::npu::bind_comm(torch_c);
  torch::npu::bind_formats(torch_c);
  torch::npu::bind_distributed(torch_c);
  torch::npu::bind_activities(torch_c);
  torch::npu::bind_profiling(torch_c);
  torch::npu::bind_operator_lines(torch_c);
  torch::npu::bind_graph_mode(torch_c);
  torch::npu::bind_optimizer(torch_c);
  torch::npu::register_profiler_stubs();
}
