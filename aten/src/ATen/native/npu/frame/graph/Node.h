#pragma once
// A command of a list that graph mode looks at, and what it reads and writes.

#include <ATen/native/npu/frame/command/Gather.h>
#include <ATen/native/npu/frame/graph/CommandInfo.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace at::native::npu::graph {

struct Node {
  std::unique_ptr<GatheredCommand> command;
  Command view;
  const CommandInfo* info;
  bool needed = true;
  std::vector<const std::byte*> values;  // for each input the value that it holds everywhere, or null; or empty
  c10::SmallVector<size_t, 2> last_use;  // of each output, see Pieces in LazyGraph.cpp
};

inline bool overlap(const Memory& a, const Memory& b) {
  const auto *x = static_cast<const char*>(a.data), *y = static_cast<const char*>(b.data);
  return x != nullptr && y != nullptr && x < y + b.bytes && y < x + a.bytes;
}

inline bool same(const Memory& a, const Memory& b) { return a.data == b.data && a.bytes == b.bytes; }

}  // namespace at::native::npu::graph
