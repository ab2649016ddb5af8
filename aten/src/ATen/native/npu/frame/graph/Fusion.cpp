// See Note [Fusing commands].

#include <ATen/native/npu/frame/graph/Fusion.h>

#include <ATen/native/npu/frame/command/Launcher.h>
#include <ATen/native/npu/frame/command/PreparedCache.h>
#include <ATen/native/npu/frame/graph/Node.h>

#include <algorithm>
#include <cstring>

namespace at::native::npu::graph {

namespace {

void append_number(std::string& text, int64_t number) { text += std::to_string(number); }

void append_word(KeyWords& words, const char* name, char kind, const void* data, size_t bytes) {
  words.push_back(reinterpret_cast<int64_t>(name));
  words.push_back(kind | static_cast<int64_t>(bytes) << 8);
  const size_t begin = words.size();
  words.resize(begin + (bytes + sizeof(int64_t) - 1) / sizeof(int64_t), 0);
  std::memcpy(words.data() + begin, data, bytes);
}

// The operands of a fused command on its way to the stream.
struct FusedOperands {
  std::vector<Memory> list;
  std::vector<FusedCommand::Input> inputs;  // of which list may point to values
  Memory* memory() { return list.data(); }
  const Memory* memory() const { return list.data(); }
};

}  // namespace

void FusionRow::clear() {
  sources_.clear();
  places_.clear();
  steps_.clear();
  elements_ = 0;
}

bool FusionRow::may_read(const Memory& memory, aclDataType dtype, Use use) const {
  return std::all_of(places_.begin(), places_.end(), [&](const Place& p) {
    if (!overlap(p.memory, memory)) return true;
    if (!p.written) return true;
    return use == Use::Whole && p.use == Use::Whole && same(p.memory, memory) && p.dtype == dtype;
  });
}

bool FusionRow::may_write(const Memory& memory, aclDataType dtype) const {
  return std::all_of(places_.begin(), places_.end(), [&](const Place& p) {
    if (!overlap(p.memory, memory) || (p.use == Use::Whole && same(p.memory, memory) && p.dtype == dtype)) return true;
    // A result that is never in this memory does not mind. Of a source other tiles are still read.
    return p.written && !p.is_source;
  });
}

int FusionRow::value_of(const OperandInfo& info, const Memory& memory, Use use, c10::IntArrayRef result_dims) {
  for (const Place& p : places_) {
    if (!same(p.memory, memory) || p.use != use || p.dtype != info.dtype) continue;
    if (use == Use::Whole) return p.value;
    const Source& s = sources_[static_cast<size_t>(p.value)];
    if (s.info->dims == info.dims && (use == Use::Single || s.result_dims == result_dims)) return p.value;
  }
  const auto value = static_cast<int>(sources_.size());
  sources_.push_back({use, &info, result_dims, memory, {}});
  places_.push_back({memory, info.dtype, use, value, false, true});
  return value;
}

int FusionRow::host_value(const OperandInfo& info, const std::byte* value, size_t bytes, Use use,
                          c10::IntArrayRef result_dims) {
  Source source{use, &info, result_dims, {nullptr, bytes}, {}};
  std::memcpy(source.value.data(), value, std::min(bytes, source.value.size()));
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& s = sources_[i];
    if (s.use == use && s.info->dtype == info.dtype && s.value == source.value && s.memory.bytes == bytes &&
        (use == Use::Host || s.result_dims == result_dims)) {
      return static_cast<int>(i);
    }
  }
  sources_.push_back(source);
  return static_cast<int>(sources_.size()) - 1;
}

int FusionRow::before_cast(const CommandInfo& info, int value) const {
  if (value < kResult || std::strcmp(info.ir, "Cast") != 0) return -1;
  const Step& first = steps_[static_cast<size_t>(value - kResult)];
  if (std::strcmp(first.ir, "Cast") != 0 || first.operands.empty() || first.operands[0] < 0) return -1;
  const aclDataType narrow = first.info->inputs[0].dtype;
  if (narrow != info.outputs[0].dtype || !holds_all_of(narrow, first.info->outputs[0].dtype)) return -1;
  if (first.operands[0] >= kResult) return first.operands[0];
  return sources_[static_cast<size_t>(first.operands[0])].use == Use::Whole ? first.operands[0] : -1;
}

bool FusionRow::fits_alone(const CommandInfo& info, const Memory* operands) {
  if (!info.fusible || info.inputs.size() > kMostOperands) return false;
  const size_t count = info.inputs.size();
  for (size_t i = 0; i < count; ++i) {
    const OperandInfo& in = info.inputs[i];
    if (in.absent || in.host || !overlap(operands[i], operands[count])) continue;
    if (!same(operands[i], operands[count]) || in.elements != info.elements || in.dtype != info.outputs[0].dtype)
      return false;
  }
  return true;
}

bool FusionRow::add(const CommandInfo& info, const Memory* operands, c10::ArrayRef<const std::byte*> values) {
  if (!info.fusible || steps_.size() >= kMostSteps || sources_.size() + info.inputs.size() > kMostOperands)
    return false;
  if (!steps_.empty() && info.elements != elements_) return false;
  const size_t count = info.inputs.size();
  const Memory out = operands[count];
  const OperandInfo& result = info.outputs[0];
  const auto is_value = [&](size_t i) { return !values.empty() && values[i] != nullptr; };
  const auto use_of = [&](size_t i) {
    const OperandInfo& in = info.inputs[i];
    if (in.host) return Use::Host;
    if (is_value(i)) return in.dims.empty() ? Use::Host : Use::Constant;
    if (in.elements == info.elements) return Use::Whole;
    return in.dims.empty() ? Use::Single : Use::Broadcast;
  };
  for (size_t i = 0; i < count; ++i) {
    const OperandInfo& in = info.inputs[i];
    if (in.absent || in.host || is_value(i)) continue;
    const Use use = use_of(i);
    if (!may_read(operands[i], in.dtype, use)) return false;
    if (overlap(operands[i], out) && !(use == Use::Whole && same(operands[i], out) && in.dtype == result.dtype))
      return false;
  }
  if (!may_write(out, result.dtype)) return false;

  elements_ = info.elements;
  Step step{&info, info.ir, {}};
  for (size_t i = 0; i < count; ++i) {
    const OperandInfo& in = info.inputs[i];
    const Use use = use_of(i);
    int value = -1;
    if (is_value(i)) {
      value = host_value(in, values[i], bytes_of(in.dtype), use, result.dims);
    } else if (in.host) {
      value = host_value(in, static_cast<const std::byte*>(operands[i].data), operands[i].bytes, use, result.dims);
    } else if (!in.absent) {
      value = value_of(in, operands[i], use, result.dims);
    }
    step.operands.push_back(value);
  }
  if (const int original = before_cast(info, step.operands[0]); original >= 0) {
    step.ir = "Identity";
    step.operands = {original};
  }
  const int value = kResult + static_cast<int>(steps_.size());
  steps_.push_back(std::move(step));
  bool is_source = false;
  std::erase_if(places_, [&](const Place& p) {
    if (!overlap(p.memory, out)) return false;
    is_source = is_source || p.is_source;
    return true;
  });
  places_.push_back({out, result.dtype, Use::Whole, value, true, is_source});
  return true;
}

FusedCommand FusionRow::finish(c10::function_ref<bool(const Memory&)> needed) const {
  FusedCommand command;
  std::vector<bool> wanted(steps_.size(), false);
  for (const Place& p : places_) {
    if (!p.written || !needed(p.memory)) continue;
    const auto step = static_cast<size_t>(p.value - kResult);
    wanted[step] = true;
    command.outputs.push_back(p.memory);
    command.output_steps.push_back(step);
  }
  if (command.outputs.empty()) return command;
  std::vector<int> slots(sources_.size(), -1);
  for (size_t i = steps_.size(); i-- > 0;) {
    if (!wanted[i]) continue;
    ++command.steps;
    for (const int value : steps_[i].operands) {
      if (value >= kResult) {
        wanted[static_cast<size_t>(value - kResult)] = true;
      } else if (value >= 0) {
        slots[static_cast<size_t>(value)] = 0;
      }
    }
  }
  std::string text;
  std::vector<const Source*> inputs;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (slots[i] < 0) continue;
    const Source& source = sources_[i];
    slots[i] = static_cast<int>(inputs.size());
    inputs.push_back(&source);
    if (source.use == Use::Single || source.use == Use::Host) {
      text += '#';
      append_number(text, slots[i]);
      text += ';';
    } else if (source.use == Use::Broadcast || source.use == Use::Constant) {
      text += '@';
      append_number(text, slots[i]);
      char separator = '=';
      for (const int64_t dim : source.result_dims) {
        text += std::exchange(separator, ',');
        append_number(text, dim);
      }
      text += ';';
    }
    auto& input = command.inputs.emplace_back();
    input.data = source.memory.data;  // none of a value
    input.bytes = source.memory.bytes;
    input.value = source.value;
  }
  int next = static_cast<int>(inputs.size());
  std::vector<int> results(steps_.size(), -1);
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!wanted[i]) continue;
    const Step& step = steps_[i];
    text += step.ir;
    for (const int value : step.operands) {
      text += ' ';
      if (value < 0) {
        text += '-';
      } else {
        append_number(
            text, value >= kResult ? results[static_cast<size_t>(value - kResult)] : slots[static_cast<size_t>(value)]);
      }
    }
    results[i] = next++;
    text += '>';
    append_number(text, results[i]);
    text += ':';
    append_number(text, step.info->outputs[0].dtype);
    if (step.ir == step.info->ir) text += step.info->attributes;
    text += ';';
  }
  char separator = '^';
  for (const size_t step : command.output_steps) {
    text += std::exchange(separator, ',');
    append_number(text, results[step]);
  }
  text += ';';

  CommandKey key;
  key.start(kFusedElementwise, inputs.size(), command.outputs.size());
  size_t slot = 0;
  for (const Source* source : inputs) {
    const bool value = source->use == Use::Host || source->use == Use::Constant;
    key.operand(slot++, source->info->dtype, value ? c10::IntArrayRef() : source->info->dims, value,
                source->info->format);
  }
  for (const size_t step : command.output_steps) {
    const OperandInfo& out = steps_[step].info->outputs[0];
    key.operand(slot++, out.dtype, out.dims, false, out.format);
  }
  KeyWords attribute;
  append_word(attribute, "program", 's', text.c_str(), text.size() + 1);
  key.attributes(attribute);
  command.prepared = c10::intrusive_ptr<Prepared>::reclaim_copy(&PreparedCache::local().get(key.words()));
  return command;
}

void launch_fused(const FusedCommand& command, const c10::npu::NPUStream& stream) {
  launch_command<FusedOperands>(stream, kFusedElementwise, *command.prepared, [&](FusedOperands& operands) {
    operands.inputs = command.inputs;
    operands.list.reserve(command.inputs.size() + command.outputs.size());
    for (auto& input : operands.inputs) {
      operands.list.push_back({input.data != nullptr ? input.data : input.value.data(), input.bytes});
    }
    operands.list.insert(operands.list.end(), command.outputs.begin(), command.outputs.end());
  });
}

}  // namespace at::native::npu::graph
