#pragma once
// What the extension module torch.npu._C is made of: each function adds its part to torch._C, under names that
// follow torch._C._cuda_*.

#include <pybind11/pybind11.h>

namespace torch::npu {

void bind_device(pybind11::module_& m);           // Device.cpp: devices, properties, generators, life cycle
void bind_autograd(pybind11::module_& m);         // Autograd.cpp: which thread runs a backward pass
void bind_streams(pybind11::module_& m);          // Stream.cpp: streams; events need only torch.Event
void bind_memory(pybind11::module_& m);           // Memory.cpp: device and pinned memory
void bind_memory_snapshot(pybind11::module_& m);  // MemorySnapshot.cpp: blocks and their history
void bind_mem_pool(pybind11::module_& m);         // MemPool.cpp: memory pools, pluggable allocators
void bind_graphs(pybind11::module_& m);           // Graph.cpp: graphs of captured work
void bind_dump(pybind11::module_& m);             // Dump.cpp: the dump of operands, the check for overflows
void bind_compile(pybind11::module_& m);          // Compile.cpp: compile options, fallbacks, the simulator's counters
void bind_comm(pybind11::module_& m);             // Comm.cpp: copies between devices for torch.nn.parallel
void bind_formats(pybind11::module_& m);          // Formats.cpp: formats of device memory in copies and files
void bind_distributed(pybind11::module_& m);      // Distributed.cpp: ProcessGroupHCCL
void bind_activities(pybind11::module_& m);       // KinetoProfiler.cpp: device activities for torch.profiler
void bind_profiling(pybind11::module_& m);        // Profiling.cpp: result folders, ranges and marks of aclprof*
void bind_operator_lines(pybind11::module_& m);   // OperatorLines.cpp: which line called an operator
void bind_graph_mode(pybind11::module_& m);       // GraphMode.cpp: fused groups of torch.compile, lazy graph mode
void bind_optimizer(pybind11::module_& m);        // Optimizer.cpp: whole steps of optimizers
void register_profiler_stubs();                   // ProfilerStubs.cpp: device time of upstream's profiler

}  // namespace torch::npu
