// See Note [Redundant commands].

#include <ATen/native/npu/frame/graph/Redundant.h>

#include <ATen/native/npu/frame/command/Launcher.h>
#include <ATen/native/npu/frame/command/PreparedCache.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace at::native::npu::graph {

namespace {

constexpr const char* kCopy = "Identity";

struct CopyOperands {
  std::array<Memory, 2> list;
  Memory* memory() { return list.data(); }
  const Memory* memory() const { return list.data(); }
};

const Memory& output(const Node& node) { return node.view.operands[node.info->inputs.size()]; }

// Whether the second transposition puts the dimensions back where they were before the first.
bool puts_back(const Node& first, const Node& second) {
  const OperandInfo& order = second.info->inputs[1];
  if (first.info->inputs[1].dtype != ACL_INT64 || order.dtype != ACL_INT64) return false;
  const auto* one = static_cast<const int64_t*>(first.view.operands[1].data);
  const auto* two = static_cast<const int64_t*>(second.view.operands[1].data);
  for (int64_t i = 0; i < order.elements; ++i) {
    if (one[two[i]] != i) return false;
  }
  return true;
}

// Whether the second, which reads what the first has written, gives what the first has read.
bool takes_back(const Node& first, const Node& second) {
  if (first.info->moves != second.info->moves) return false;
  const OperandInfo &from = first.info->inputs[0], &to = first.info->outputs[0];
  const OperandInfo &back = second.info->inputs[0], &result = second.info->outputs[0];
  switch (second.info->moves) {
    case Moves::Cast:
      return from.dtype == result.dtype && to.dtype == back.dtype && from.elements == result.elements &&
             holds_all_of(from.dtype, to.dtype);
    case Moves::Format:
      return from.dtype == result.dtype && from.dims == result.dims && from.format == result.format &&
             to.dims == back.dims && to.format == back.format;
    case Moves::Order:
      return from.dtype == result.dtype && from.dims == result.dims && to.dims == back.dims && puts_back(first, second);
    default:
      return false;
  }
}

// Whether both do the same with the same memory and the same values.
bool are_alike(const Node& a, const Node& b) {
  if (a.info->moves != b.info->moves || a.view.prepared->key() != b.view.prepared->key()) return false;
  for (size_t i = 0; i < a.info->inputs.size(); ++i) {
    const Memory &x = a.view.operands[i], &y = b.view.operands[i];
    if (a.info->inputs[i].absent || same(x, y)) continue;
    if (!a.info->inputs[i].host || x.bytes != y.bytes || std::memcmp(x.data, y.data, x.bytes) != 0) return false;
  }
  return true;
}

// Whether an element-wise command may write where it reads that input.
bool reads_in_place(const CommandInfo& info, size_t input, const Memory& in, const Memory& out) {
  const OperandInfo &read = info.inputs[input], &result = info.outputs[0];
  return same(in, out) && read.elements == info.elements && read.dtype == result.dtype;
}

class Redundancy {
 public:
  explicit Redundancy(CommandInfos& infos) : infos_(infos) {}

  // False if the node is not to be sent.
  bool keep(Node& node) {
    const CommandInfo& info = *node.info;
    if (!info.pure) {
      moved_.clear();  // what it writes besides its outputs is not known
      return true;
    }
    if (info.moves == Moves::No && moved_.empty()) return true;
    read_originals(node);
    if (info.moves != Moves::No) {
      for (const Node* first : moved_) {
        const Memory* held = nullptr;
        if (same(output(*first), node.view.operands[0]) && takes_back(*first, node)) {
          held = first->view.operands;
        } else if (are_alike(*first, node)) {
          held = &output(*first);
        }
        if (held == nullptr) continue;
        if (same(*held, output(node))) {
          ++count_;
          return false;
        }
        // A copy reads its original already.
        if (info.moves == Moves::Copy || overlap(*held, output(node))) continue;
        ++count_;
        become_copy(node, *held);
        break;
      }
    }
    for (size_t i = 0; i < node.info->outputs.size(); ++i) {
      const Memory& out = node.view.operands[node.info->inputs.size() + i];
      std::erase_if(moved_,
                    [&](const Node* m) { return overlap(m->view.operands[0], out) || overlap(output(*m), out); });
    }
    if (node.info->moves != Moves::No && !overlap(node.view.operands[0], output(node))) moved_.push_back(&node);
    return true;
  }
  size_t count() const { return count_; }

 private:
  void read_originals(Node& node) {
    const CommandInfo& info = *node.info;
    for (size_t i = 0; i < info.inputs.size(); ++i) {
      if (info.inputs[i].absent || info.inputs[i].host) continue;
      Memory& in = node.command->operands()[i];
      for (const Node* m : moved_) {
        if (m->info->moves != Moves::Copy || !same(output(*m), in)) continue;
        const Memory& original = m->view.operands[0];
        bool written = false;  // while it is read
        for (size_t k = 0; k < info.outputs.size(); ++k) {
          const Memory& out = node.view.operands[info.inputs.size() + k];
          written = written || (overlap(original, out) && !(info.fusible && reads_in_place(info, i, original, out)));
        }
        if (!written) in.data = original.data;
        break;
      }
    }
  }

  void become_copy(Node& node, const Memory& from) {
    const OperandInfo& out = node.info->outputs[0];
    CommandKey key;
    key.start(kCopy, 1, 1);
    for (size_t slot = 0; slot < 2; ++slot) key.operand(slot, out.dtype, out.dims, false, ACL_FORMAT_UNDEFINED);
    Prepared& prepared = PreparedCache::local().get(key.words());
    npu::detail::CommandTask<CopyOperands> task(kCopy, prepared);
    task.operands().list = {from, output(node)};
    node.command = std::make_unique<npu::detail::Gathered<CopyOperands>>(node.command->stream(), std::move(task));
    node.view = node.command->command();
    node.info = &infos_.get(prepared);
  }

  CommandInfos& infos_;
  std::vector<const Node*> moved_;  // of which both places hold the values still
  size_t count_ = 0;
};

}  // namespace

size_t remove_redundant(std::vector<Node>& nodes, CommandInfos& infos) {
  Redundancy redundancy(infos);
  std::vector<size_t> gone;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!redundancy.keep(nodes[i])) gone.push_back(i);
  }
  // From behind, so that numbers stay what they are.
  for (size_t i = gone.size(); i-- > 0;) nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(gone[i]));
  return redundancy.count();
}

}  // namespace at::native::npu::graph
