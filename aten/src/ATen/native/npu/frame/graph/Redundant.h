#pragma once
// Commands of a list that bring values where they are already.
//
// Note [Redundant commands]
// Some commands compute nothing: they bring values into another type (Cast), another format (TransData), another order
// (Transpose, AsStrided, BroadcastTo) or another place (Identity). While what one has read and what it has written stay
// as they are,
//   - a command that takes it back becomes a copy of what the first has read; of casts only those to a type that holds
//     all numbers of the first one are taken back so;
//   - a command that does the same again becomes a copy of what the first has written;
//   - whoever reads a copy reads the original instead;
//   - a copy onto its own original is not made.
// Copies that nobody reads any more are dropped with the other results that nobody needs. Those that somebody keeps are
// made.

#include <ATen/native/npu/frame/graph/CommandInfo.h>
#include <ATen/native/npu/frame/graph/Node.h>

#include <cstddef>
#include <vector>

namespace at::native::npu::graph {

// Returns how many commands became copies, or are gone.
size_t remove_redundant(std::vector<Node>& nodes, CommandInfos& infos);

}  // namespace at::native::npu::graph
