// See Note [Fused groups].

#include <ATen/native/npu/frame/graph/FusedGroup.h>

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Gather.h>
#include <ATen/native/npu/frame/command/Launcher.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OverflowCheck.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/layout/Format.h>

#include <algorithm>

namespace at::native::npu::graph {

namespace {

void* address(const Tensor& t) {
  const auto* storage = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return static_cast<char*>(const_cast<void*>(storage->data())) +
         t.storage_offset() * static_cast<int64_t>(t.itemsize());
}

// Keeps the commands of one call of a group's function.
class Recorder final : public Gatherer {
 public:
  Recorder() : before_(gather_own_commands(this)) {}
  ~Recorder() override { stop(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void take(std::unique_ptr<GatheredCommand> command) override { commands_.push_back(std::move(command)); }
  void send() override {
    in_pieces_ = true;
    auto commands = std::move(commands_);
    commands_.clear();
    const SendingScope scope;
    for (auto& command : commands) send_command(std::move(command));
  }
  void stop() {
    if (!stopped_) gather_own_commands(before_);
    stopped_ = true;
  }
  // Something had to be sent in between.
  bool in_pieces() const { return in_pieces_; }
  const std::vector<std::unique_ptr<GatheredCommand>>& commands() const { return commands_; }
  void drop() { commands_.clear(); }

 private:
  Gatherer* before_;
  bool stopped_ = false;
  bool in_pieces_ = false;
  std::vector<std::unique_ptr<GatheredCommand>> commands_;
};

}  // namespace

struct FusedGroup::Plan {
  struct Output {
    DimVector sizes, strides;
    ScalarType dtype;
  };
  Words words;  // of the inputs that it is for
  bool fused = false;
  FusedCommand command;         // addresses are another call's
  std::vector<int> arguments;   // of the command's inputs; -1: a number
  std::vector<Output> outputs;  // of the group
  std::vector<size_t> order;    // output of the group -> output of the command
};

FusedGroup::FusedGroup() = default;
FusedGroup::~FusedGroup() = default;

bool FusedGroup::describe(c10::ArrayRef<Tensor> inputs, Words& words) {
  if (inputs.empty()) return false;
  const bool formats = stored_formats.load(std::memory_order_relaxed) != 0;
  const Device device = inputs[0].device();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    if (!t.device().is_privateuseone() || t.device() != device || t.is_conj() || t.is_neg()) return false;
    if (formats && in_private_format(t)) return false;
    // Which inputs are one and the same memory is part of what the command depends on.
    size_t first = 0;
    while (address(inputs[first]) != address(t)) ++first;
    words.push_back(static_cast<int64_t>(t.scalar_type()) | t.dim() << 8 | static_cast<int64_t>(first) << 16 |
                    static_cast<int64_t>(device.index()) << 48);
    words.append(t.sizes().begin(), t.sizes().end());
    if (!t.is_contiguous()) {
      words.push_back(-1);
      words.append(t.strides().begin(), t.strides().end());
    }
  }
  return true;
}

std::shared_ptr<const FusedGroup::Plan> FusedGroup::find(const Words& words) const {
  const std::lock_guard lock(mutex_);
  for (const auto& plan : plans_) {
    if (plan->words == words) return plan;
  }
  return nullptr;
}

void FusedGroup::keep(std::shared_ptr<const Plan> plan) {
  const std::lock_guard lock(mutex_);
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_.push_back(std::move(plan));
}

std::pair<size_t, size_t> FusedGroup::counts() const {
  const std::lock_guard lock(mutex_);
  const auto fused = static_cast<size_t>(std::count_if(plans_.begin(), plans_.end(), [](auto& p) { return p->fused; }));
  return {fused, plans_.size() - fused};
}

bool FusedGroup::replay(c10::ArrayRef<Tensor> inputs, std::vector<Tensor>& outputs) {
  Words words;
  if (!describe(inputs, words)) return false;
  const auto plan = find(words);
  // The check names the operator that overflowed, so each goes alone.
  if (plan == nullptr || !plan->fused || overflow_check_is_on()) return false;
  const DeviceOf guard(inputs[0]);
  FusedCommand command = plan->command;
  for (size_t i = 0; i < command.inputs.size(); ++i) {
    if (plan->arguments[i] >= 0) command.inputs[i].data = address(inputs[static_cast<size_t>(plan->arguments[i])]);
  }
  for (size_t i = 0; i < plan->outputs.size(); ++i) {
    const auto& output = plan->outputs[i];
    outputs.push_back(empty_npu(output.sizes, output.strides, output.dtype, inputs[0].device()));
    command.outputs[plan->order[i]].data = address(outputs.back());
  }
  launch_fused(command, c10::npu::getCurrentNPUStream(inputs[0].device().index()));
  return true;
}

bool FusedGroup::records(c10::ArrayRef<Tensor> inputs) const {
  Words words;
  return !lacks(kFusedElementwise) && !detail::launches_are_observed.load() && describe(inputs, words) &&
         find(words) == nullptr;
}

std::vector<Tensor> FusedGroup::record(c10::ArrayRef<Tensor> inputs,
                                       c10::function_ref<std::vector<Tensor>()> function) {
  const DeviceOf guard(inputs[0]);
  auto plan = std::make_shared<Plan>();
  describe(inputs, plan->words);
  Recorder recorder;
  std::vector<Tensor> outputs;
  try {
    outputs = function();
  } catch (...) {
    recorder.stop();
    recorder.send();
    throw;
  }
  recorder.stop();

  const auto fuse = [&] {
    if (recorder.in_pieces() || recorder.commands().empty()) return false;
    const auto stream = c10::npu::getCurrentNPUStream(inputs[0].device().index());
    CommandInfos infos;
    FusionRow row;
    for (const auto& gathered : recorder.commands()) {
      const Command command = gathered->command();
      if (gathered->stream() != stream || !row.add(infos.get(*command.prepared), command.operands)) return false;
    }
    const auto output_of = [&](const Memory& memory) {
      return std::find_if(outputs.begin(), outputs.end(), [&](const Tensor& t) {
        return address(t) == memory.data && t.numel() * t.itemsize() == memory.bytes;
      });
    };
    plan->command = row.finish([&](const Memory& memory) { return output_of(memory) != outputs.end(); });
    if (plan->command.outputs.size() != outputs.size()) return false;
    plan->order.assign(outputs.size(), 0);
    for (size_t k = 0; k < outputs.size(); ++k) {
      plan->order[static_cast<size_t>(output_of(plan->command.outputs[k]) - outputs.begin())] = k;
    }
    for (const auto& input : plan->command.inputs) {
      const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const Tensor& t) {
        return address(t) == input.data && t.numel() * t.itemsize() == input.bytes;
      });
      if (input.data != nullptr && found == inputs.end()) return false;
      plan->arguments.push_back(input.data == nullptr ? -1 : static_cast<int>(found - inputs.begin()));
    }
    for (const Tensor& t : outputs) {
      plan->outputs.push_back({DimVector(t.sizes()), DimVector(t.strides()), t.scalar_type()});
    }
    launch_fused(plan->command, stream);
    return true;
  };
  plan->fused = fuse();
  if (plan->fused) {
    recorder.drop();
  } else {
    recorder.send();
  }
  keep(std::move(plan));
  return outputs;
}

}  // namespace at::native::npu::graph
