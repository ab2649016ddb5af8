// See Note [Lazy graph].

#include <ATen/native/npu/frame/graph/LazyGraph.h>

#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/graph/GraphFiles.h>
#include <c10/npu/NPUCachingAllocator.h>

#include <algorithm>
#include <exception>

namespace at::native::npu::graph {

namespace {

// Memory that commands of a list read or write, and until when what is in it at the command looked at is needed: 0:
// nobody reads it, n + 1: command n reads it last, kAlways: somebody has it in the end.
constexpr size_t kAlways = SIZE_MAX;
struct Region {
  const char* begin;
  const char* end;
  size_t last_use;
};

// The regions of a list. Most operands are the same memory as another or apart from all others; the few that overlap
// otherwise are kept as needed whenever one of them is read.
class Regions {
 public:
  explicit Regions(DeviceIndex device) : device_(device) {}

  void add(const Memory& memory) {
    if (memory.data == nullptr || memory.bytes == 0) return;
    const auto* begin = static_cast<const char*>(memory.data);
    const auto [found, fresh] = numbers_.emplace(key(memory), list_.size());
    if (fresh) list_.push_back({begin, begin + memory.bytes, kAlways});
  }
  // Once all are added.
  void finish() {
    order_.resize(list_.size());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return list_[a].begin < list_[b].begin; });
    overlaps_.assign(list_.size(), false);
    const char* reach = nullptr;
    size_t farthest = 0;
    for (const size_t i : order_) {
      if (reach != nullptr && list_[i].begin < reach) overlaps_[i] = overlaps_[farthest] = true;
      if (reach == nullptr || list_[i].end > reach) {
        reach = list_[i].end;
        farthest = i;
      }
    }
    // One that overlaps both its neighbours may lie between two that were compared with another only.
    for (size_t k = 1; k < order_.size(); ++k) {
      if (list_[order_[k]].begin < list_[order_[k - 1]].end) overlaps_[order_[k]] = overlaps_[order_[k - 1]] = true;
    }
    for (Region& region : list_) {
      const bool free = c10::npu::NPUCachingAllocator::get()->isFree(device_, region.begin);
      region.last_use = free ? 0 : kAlways;
    }
  }
  size_t last_use(const Memory& memory) const {
    if (memory.data == nullptr || memory.bytes == 0) return 0;
    const size_t i = numbers_.find(key(memory))->second;
    if (!overlaps_[i]) return list_[i].last_use;
    size_t last = 0;
    for (const Region& r : list_) {
      if (meet(r, list_[i])) last = std::max(last, r.last_use);
    }
    return last;
  }
  // From the last command to the first.
  void read(const Memory& memory, size_t command) {
    if (memory.data == nullptr || memory.bytes == 0) return;
    Region& region = list_[numbers_.find(key(memory))->second];
    if (region.last_use == 0) region.last_use = command + 1;
  }
  // What was there before is needed by nobody, unless a part of it is.
  void overwrite(const Memory& memory) {
    if (memory.data == nullptr || memory.bytes == 0) return;
    const size_t i = numbers_.find(key(memory))->second;
    list_[i].last_use = 0;
    if (!overlaps_[i]) return;
    // Those that lie within it are overwritten, too; of those that reach further a part may be needed still.
    for (Region& r : list_) {
      if (r.begin >= list_[i].begin && r.end <= list_[i].end) r.last_use = 0;
    }
  }

 private:
  struct Hash {
    size_t operator()(const std::pair<const void*, size_t>& k) const {
      return (reinterpret_cast<size_t>(k.first) >> 6) * 0x9E3779B97F4A7C15ULL ^ k.second;
    }
  };
  static std::pair<const void*, size_t> key(const Memory& memory) { return {memory.data, memory.bytes}; }
  static bool meet(const Region& a, const Region& b) { return a.begin < b.end && b.begin < a.end; }

  DeviceIndex device_;
  std::vector<Region> list_;
  std::vector<size_t> order_;
  std::vector<bool> overlaps_;
  ska::flat_hash_map<std::pair<const void*, size_t>, size_t, Hash> numbers_;
};

}  // namespace

LazyGraph& LazyGraph::instance() {
  static auto* const graph = new LazyGraph;  // threads may outlive static destruction
  return *graph;
}

void LazyGraph::enable() {
  if (!enabled_.exchange(true)) gather_all_commands(this);
}

void LazyGraph::disable() {
  if (enabled_.exchange(false)) gather_all_commands(nullptr);
  send();
}

LazyCounts LazyGraph::counts() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void LazyGraph::take(std::unique_ptr<GatheredCommand> command) {
  const std::lock_guard lock(mutex_);
  if (!commands_.empty() && commands_.back()->stream() != command->stream()) send_all();
  commands_.push_back(std::move(command));
  if (commands_.size() >= kMostCommands) send_all();
}

void LazyGraph::send() {
  const std::lock_guard lock(mutex_);
  send_all();
}

void LazyGraph::find_needed(std::vector<Node>& nodes) {
  Regions regions(nodes.front().command->stream().device_index());
  const auto each = [](const Node& node, auto&& input, auto&& output) {
    const size_t inputs = node.info->inputs.size();
    for (size_t i = 0; i < node.info->outputs.size(); ++i) {
      if (!node.info->outputs[i].absent) output(i, node.view.operands[inputs + i]);
    }
    for (size_t i = 0; i < inputs; ++i) {
      const OperandInfo& in = node.info->inputs[i];
      if (!in.absent && !in.host) input(node.view.operands[i]);
    }
  };
  for (const Node& node : nodes) {
    each(node, [&](const Memory& m) { regions.add(m); }, [&](size_t, const Memory& m) { regions.add(m); });
  }
  regions.finish();
  for (size_t n = nodes.size(); n-- > 0;) {
    Node& node = nodes[n];
    node.last_use.assign(node.info->outputs.size(), 0);
    bool any = !node.info->pure;  // of the others it is not known that they do nothing else
    const size_t inputs = node.info->inputs.size();
    for (size_t i = 0; i < node.last_use.size(); ++i) {
      if (node.info->outputs[i].absent) continue;
      node.last_use[i] = regions.last_use(node.view.operands[inputs + i]);
      any = any || node.last_use[i] != 0;
    }
    node.needed = any;
    if (!any) continue;
    // One that is not known to be pure may leave parts of its output as they were.
    each(
        node, [](const Memory&) {},
        [&](size_t, const Memory& m) {
          if (node.info->pure) regions.overwrite(m);
        });
    each(
        node, [&](const Memory& m) { regions.read(m, n); },
        [&](size_t, const Memory& m) {
          if (!node.info->pure) regions.read(m, n);
        });
  }
}

void LazyGraph::launch(std::vector<Node>& nodes, std::string* text) {
  std::exception_ptr failure;
  const auto guarded = [&](auto&& work) {
    try {
      work();
    } catch (...) {
      // What was called later runs all the same, as it would have if this had been an error of the device.
      if (!failure) failure = std::current_exception();
    }
  };
  FusionRow row;
  std::vector<Node*> members;
  const auto send_row = [&] {
    if (members.size() == 1) {
      ++counts_.sent;
      if (text != nullptr) append_node(*text, *members[0]->info, members[0]->view.operands);
      guarded([&] { send_command(std::move(members[0]->command)); });
    } else if (members.size() > 1) {
      guarded([&] {
        // What is read within the row only is not written.
        const auto end = static_cast<size_t>(members.back() - nodes.data()) + 1;
        const FusedCommand fused = row.finish([&](const Memory& memory) {
          // The last of the row that writes it.
          for (size_t k = members.size(); k-- > 0;) {
            const Node& node = *members[k];
            const Memory& out = node.view.operands[node.info->inputs.size()];
            if (out.data == memory.data) return node.last_use[0] > end;
          }
          return true;
        });
        if (fused.outputs.empty()) return;
        ++counts_.sent;
        counts_.fused += fused.steps;
        if (text != nullptr) append_fused(*text, fused);
        launch_fused(fused, members[0]->command->stream());
      });
    }
    row.clear();
    members.clear();
  };
  const bool fuses = !lacks(kFusedElementwise);
  for (Node& node : nodes) {
    if (!node.needed) {
      ++counts_.dropped;
      continue;
    }
    if (!fuses || !row.add(*node.info, node.view.operands)) {
      send_row();
      if (!fuses || !row.add(*node.info, node.view.operands)) {
        members.push_back(&node);
        send_row();
        continue;
      }
    }
    members.push_back(&node);
  }
  send_row();
  if (failure) std::rethrow_exception(failure);
}

void LazyGraph::send_all() {
  if (commands_.empty()) return;
  const SendingScope scope;
  std::vector<Node> nodes;
  nodes.reserve(commands_.size());
  for (auto& command : commands_) {
    Node& node = nodes.emplace_back();
    node.command = std::move(command);
    node.view = node.command->command();
    node.info = &infos_.get(*node.view.prepared);
  }
  commands_.clear();
  ++counts_.graphs;
  counts_.gathered += nodes.size();
  find_needed(nodes);
  if (!writes_graphs()) {
    launch(nodes, nullptr);
    return;
  }
  std::string before, after;
  for (const Node& node : nodes) append_node(before, *node.info, node.view.operands);
  try {
    launch(nodes, &after);
  } catch (...) {
    write_graph(before, after);
    throw;
  }
  write_graph(before, after);
}

}  // namespace at::native::npu::graph
