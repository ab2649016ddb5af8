#pragma once
// Graphs of graph mode as files that one can read: DUMP_GE_GRAPH and DUMP_GRAPH_LEVEL.

#include <ATen/native/npu/frame/graph/CommandInfo.h>
#include <ATen/native/npu/frame/graph/Fusion.h>

#include <string>

namespace at::native::npu::graph {

// Whether DUMP_GE_GRAPH is set, to 1, 2 or 3.
bool writes_graphs();
// One line: type, operands with dtypes, shapes and the names of their memory, attributes.
void append_node(std::string& text, const CommandInfo& info, const Memory* operands);
void append_fused(std::string& text, const FusedCommand& command);
// Writes the graph as it was gathered and as it was sent.
void write_graph(const std::string& before, const std::string& after);

}  // namespace at::native::npu::graph
