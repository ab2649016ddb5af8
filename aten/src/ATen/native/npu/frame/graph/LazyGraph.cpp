// See Note [Lazy graph].

#include <ATen/native/npu/frame/graph/LazyGraph.h>

#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/graph/GraphFiles.h>
#include <ATen/native/npu/frame/graph/Redundant.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace at::native::npu::graph {

namespace {

// Until when what a piece of memory holds at the command looked at is needed. 0: nobody reads it, n + 1: command n
// reads it last, kAlways: somebody has it in the end.
constexpr size_t kAlways = SIZE_MAX;

// The memory of a list's operands, cut into pieces wherever an operand begins or ends: each is read and written as a
// whole. Most operands are one piece.
class Pieces {
 public:
  explicit Pieces(DeviceIndex device) : device_(device) {}

  void add(const Memory& memory) {
    if (memory.data == nullptr || memory.bytes == 0) return;
    const auto* begin = static_cast<const char*>(memory.data);
    if (!ranges_.emplace(key(memory), std::pair<size_t, size_t>()).second) return;
    bounds_.push_back(begin);
    bounds_.push_back(begin + memory.bytes);
  }
  // Once all are added.
  void finish() {
    std::sort(bounds_.begin(), bounds_.end());
    bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
    last_use_.assign(bounds_.size(), kUnknown);
    for (auto& [memory, range] : ranges_) {
      const auto* begin = static_cast<const char*>(memory.first);
      range = {number(begin), number(begin + memory.second)};
      // Where a piece begins says it of all: a block that begins within it, and is no operand, holds nothing yet.
      for (size_t i = range.first; i < range.second; ++i) {
        if (last_use_[i] != kUnknown) continue;
        last_use_[i] = c10::npu::NPUCachingAllocator::get()->isFree(device_, bounds_[i]) ? 0 : kAlways;
      }
    }
  }
  size_t last_use(const Memory& memory) const {
    size_t last = 0;
    each(memory, [&](size_t i) { last = std::max(last, last_use_[i]); });
    return last;
  }
  // From the last command to the first.
  void read(const Memory& memory, size_t command) {
    each(memory, [&](size_t i) {
      if (last_use_[i] == 0) last_use_[i] = command + 1;
    });
  }
  // What was there before is needed by nobody.
  void overwrite(const Memory& memory) {
    each(memory, [&](size_t i) { last_use_[i] = 0; });
  }

 private:
  static constexpr size_t kUnknown = SIZE_MAX - 1;
  struct Hash {
    size_t operator()(const std::pair<const void*, size_t>& k) const {
      return (reinterpret_cast<size_t>(k.first) >> 6) * 0x9E3779B97F4A7C15ULL ^ k.second;
    }
  };
  static std::pair<const void*, size_t> key(const Memory& memory) { return {memory.data, memory.bytes}; }
  size_t number(const char* bound) const {
    return static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), bound) - bounds_.begin());
  }
  template <class F>
  void each(const Memory& memory, F&& visit) const {
    if (memory.data == nullptr || memory.bytes == 0) return;
    const auto [first, last] = ranges_.find(key(memory))->second;
    for (size_t i = first; i < last; ++i) visit(i);
  }

  DeviceIndex device_;
  std::vector<const char*> bounds_;
  std::vector<size_t> last_use_;  // of the piece that begins at each bound
  ska::flat_hash_map<std::pair<const void*, size_t>, std::pair<size_t, size_t>, Hash> ranges_;
};

// The bytes of an element that a Fill writes.
void write_filled(const CommandInfo& info, const Memory& number, std::array<std::byte, 16>& value) {
  const aclDataType filled = info.outputs[0].dtype;
  if (info.inputs[1].dtype == filled) {
    std::memcpy(value.data(), number.data, std::min(number.bytes, value.size()));
    return;
  }
  float wide = 0;
  std::memcpy(&wide, number.data, sizeof wide);
  const uint16_t bits = filled == ACL_FLOAT16 ? c10::Half(wide).x : c10::BFloat16(wide).x;
  std::memcpy(value.data(), &bits, sizeof bits);
}

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

void LazyGraph::fold_constants(std::vector<Node>& nodes, Values& values) {
  struct Constant {
    Memory memory;
    const OperandInfo* info;
    const std::byte* value;
  };
  std::vector<Constant> constants;
  for (Node& node : nodes) {
    const CommandInfo& info = *node.info;
    const Memory* operands = node.view.operands;
    const size_t inputs = info.inputs.size();
    if (!constants.empty() && FusionRow::fits_alone(info, operands)) {
      for (size_t i = 0; i < inputs; ++i) {
        const OperandInfo& in = info.inputs[i];
        if (in.absent || in.host) continue;
        for (const Constant& c : constants) {
          if (c.memory.data != operands[i].data || c.info->dtype != in.dtype || c.info->elements != in.elements)
            continue;
          node.values.resize(inputs, nullptr);
          node.values[i] = c.value;
        }
      }
    }
    if (!info.pure) {
      constants.clear();  // what it writes besides its outputs is not known
      continue;
    }
    for (size_t i = 0; i < info.outputs.size() && !constants.empty(); ++i) {
      std::erase_if(constants, [&](const Constant& c) { return overlap(c.memory, operands[inputs + i]); });
    }
    if (info.fills == Fills::No) continue;
    auto& value = values.emplace_back();
    if (info.fills == Fills::WithInput) write_filled(info, operands[1], value);
    constants.push_back({operands[inputs], info.outputs.data(), value.data()});
  }
}

void LazyGraph::find_needed(std::vector<Node>& nodes) {
  Pieces pieces(nodes.front().command->stream().device_index());
  const auto each = [](const Node& node, auto&& input, auto&& output) {
    const size_t inputs = node.info->inputs.size();
    for (size_t i = 0; i < node.info->outputs.size(); ++i) {
      if (!node.info->outputs[i].absent) output(i, node.view.operands[inputs + i]);
    }
    for (size_t i = 0; i < inputs; ++i) {
      const OperandInfo& in = node.info->inputs[i];
      const bool read = !in.absent && !in.host && node.info->fills == Fills::No;
      if (read && (node.values.empty() || node.values[i] == nullptr)) input(node.view.operands[i]);
    }
  };
  for (const Node& node : nodes) {
    each(node, [&](const Memory& m) { pieces.add(m); }, [&](size_t, const Memory& m) { pieces.add(m); });
  }
  pieces.finish();
  for (size_t n = nodes.size(); n-- > 0;) {
    Node& node = nodes[n];
    node.last_use.assign(node.info->outputs.size(), 0);
    bool any = !node.info->pure;  // of the others it is not known that they do nothing else
    const size_t inputs = node.info->inputs.size();
    for (size_t i = 0; i < node.last_use.size(); ++i) {
      if (node.info->outputs[i].absent) continue;
      node.last_use[i] = pieces.last_use(node.view.operands[inputs + i]);
      any = any || node.last_use[i] != 0;
    }
    node.needed = any;
    if (!any) continue;
    // One that is not known to be pure may leave parts of its output as they were.
    each(
        node, [](const Memory&) {},
        [&](size_t, const Memory& m) {
          if (node.info->pure) pieces.overwrite(m);
        });
    each(
        node, [&](const Memory& m) { pieces.read(m, n); },
        [&](size_t, const Memory& m) {
          if (!node.info->pure) pieces.read(m, n);
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
  std::vector<Node*> members, waiting;
  const auto send_alone = [&](Node& node) {
    ++counts_.sent;
    if (text != nullptr) append_node(*text, *node.info, node.view.operands);
    guarded([&] { send_command(std::move(node.command)); });
  };
  const auto reads = [](const Node& node, const Memory& memory) {
    for (size_t i = 0; i < node.info->inputs.size(); ++i) {
      const OperandInfo& in = node.info->inputs[i];
      const bool value = !node.values.empty() && node.values[i] != nullptr;
      if (!in.absent && !in.host && !value && overlap(node.view.operands[i], memory)) return true;
    }
    return false;
  };
  const auto writes = [](const Node& node, const Memory& memory) {
    for (size_t i = 0; i < node.info->outputs.size(); ++i) {
      if (overlap(node.view.operands[node.info->inputs.size() + i], memory)) return true;
    }
    return false;
  };
  // Whether a member may come before what waits.
  const auto may_overtake = [&](const Node& member) {
    const Memory& out = member.view.operands[member.info->inputs.size()];
    return std::none_of(waiting.begin(), waiting.end(), [&](const Node* node) {
      if (reads(*node, out) || writes(*node, out)) return true;
      for (size_t i = 0; i < node->info->outputs.size(); ++i) {
        if (reads(member, node->view.operands[node->info->inputs.size() + i])) return true;
      }
      return false;
    });
  };
  const auto send_row = [&] {
    if (members.size() == 1 && members[0]->values.empty()) {
      send_alone(*members[0]);
    } else if (!members.empty()) {
      guarded([&] {
        // What is read within the row only is not written.
        const auto end = static_cast<size_t>(members.back() - nodes.data()) + 1;
        const FusedCommand fused = row.finish([&](const Memory& memory) {
          for (const Node* node : waiting) {
            if (reads(*node, memory)) return true;
          }
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
    for (Node* node : std::exchange(waiting, {})) send_alone(*node);
  };
  const bool fuses = !lacks(kFusedElementwise);
  for (Node& node : nodes) {
    if (!node.needed) {
      ++counts_.dropped;
      continue;
    }
    const auto joins = [&] {
      return fuses && may_overtake(node) && row.add(*node.info, node.view.operands, node.values);
    };
    if (joins()) {
      members.push_back(&node);
    } else if (!members.empty() && node.info->pure && !node.info->fusible && waiting.size() < kMostWaiting) {
      waiting.push_back(&node);
    } else {
      send_row();
      if (joins()) {
        members.push_back(&node);
      } else {
        send_alone(node);
      }
    }
  }
  send_row();
  if (failure) std::rethrow_exception(failure);
}

void LazyGraph::send_all() {
  if (commands_.empty()) return;
  const SendingScope scope;
  infos_.trim();
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
  std::string before, after;
  if (writes_graphs()) {
    for (const Node& node : nodes) append_node(before, *node.info, node.view.operands);
  }
  counts_.redundant += remove_redundant(nodes, infos_);
  Values values;
  if (!lacks(kFusedElementwise)) fold_constants(nodes, values);
  find_needed(nodes);
  if (!writes_graphs()) {
    launch(nodes, nullptr);
    return;
  }
  try {
    launch(nodes, &after);
  } catch (...) {
    write_graph(before, after);
    throw;
  }
  write_graph(before, after);
}

}  // namespace at::native::npu::graph
