#pragma once
// Graphs of single operators for CANN's tuning (AOE): torch.npu.set_aoe.

#include <ATen/native/npu/frame/command/Encoder.h>

#include <string>

namespace at::native::npu {

// From now on each operator is described to AscendCL once, before its first launch, which writes its graph into the
// folder. While that goes on operators are sent one by one.
void write_operator_graphs(const std::string& folder);

// For the encoder: writes the graph of a command that it prepared, does nothing for one of another encoder.
aclError write_operator_graph(const Command& command, const char* folder);

}  // namespace at::native::npu
