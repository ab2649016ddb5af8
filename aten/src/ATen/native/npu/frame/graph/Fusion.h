#pragma once
// A row of element-wise commands as one command of the device's fused operator.
//
// Note [Fusing commands]
// Commands that follow one another, each element by element on as many elements, become the steps of one
// FusedElementwise (Note [Fused element-wise operators] in simulator/ops/fused/program.h). Only addresses are known of
// their operands, and an address may stand for several tensors in turn: in place, or because memory was freed and
// handed out again. So a step's result is a new value; who reads that memory later reads the newest one. A value whose
// memory was written again, or that is free when the row is sent, is not written at all. Memory that overlaps in any
// other way, where one of the two is written, ends the row. Operands that hold one value everywhere may be given as
// that value: then nothing is read. A Cast that takes back the Cast before it, to a type that holds all numbers of the
// first one, becomes a copy of what that one has read.

#include <ATen/native/npu/frame/command/Encoder.h>
#include <ATen/native/npu/frame/graph/CommandInfo.h>
#include <c10/npu/NPUStream.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <string>
#include <vector>

namespace at::native::npu::graph {

inline constexpr const char* kFusedElementwise = "FusedElementwise";

// A fused command. Operands are inputs, then outputs; those of host values have their bytes here.
struct FusedCommand {
  struct Input {
    void* data = nullptr;  // null: a host value
    size_t bytes = 0;
    std::array<std::byte, 16> value{};
  };
  std::vector<Input> inputs;
  std::vector<Memory> outputs;
  std::vector<size_t> output_steps;  // which of the row's commands makes each output
  size_t steps = 0;                  // fewer than commands, if some are not needed
  c10::intrusive_ptr<Prepared> prepared;
};

class FusionRow {
 public:
  static constexpr size_t kMostSteps = 48;
  static constexpr size_t kMostOperands = 30;

  bool empty() const { return steps_.empty(); }
  size_t size() const { return steps_.size(); }
  void clear();
  // False if the command does not fit behind those that are there. `info` stays until clear(). Of `values`, for each
  // input, those that are not null stand for what is in memory; empty: there are none.
  bool add(const CommandInfo& info, const Memory* operands, c10::ArrayRef<const std::byte*> values = {});
  // Whether the command fits where nothing is before it.
  static bool fits_alone(const CommandInfo& info, const Memory* operands);
  // Tells which results are needed, of those whose memory still holds them; then makes the command. Without needed
  // results there are no outputs, and nothing to send.
  FusedCommand finish(c10::function_ref<bool(const Memory&)> needed) const;

 private:
  // Constant: a value that is expanded to all elements.
  enum class Use : uint8_t { Whole, Single, Broadcast, Host, Constant };
  struct Source {  // an input of the row
    Use use;
    const OperandInfo* info;
    c10::IntArrayRef result_dims;  // of the command that broadcasts it
    Memory memory;
    std::array<std::byte, 16> value;
  };
  struct Place {  // memory that the row reads or writes
    Memory memory;
    aclDataType dtype;
    Use use;
    int value;  // the newest: a source, or kResult + a step
    bool written;
    bool is_source;  // the row reads what was there before
  };
  struct Step {
    const CommandInfo* info;
    const char* ir;                     // the command's, unless it is replaced by one without attributes
    c10::SmallVector<int, 4> operands;  // values; -1: absent
  };
  static constexpr int kResult = 1 << 20;

  bool may_read(const Memory& memory, aclDataType dtype, Use use) const;
  bool may_write(const Memory& memory, aclDataType dtype) const;
  int value_of(const OperandInfo& info, const Memory& memory, Use use, c10::IntArrayRef result_dims);
  int host_value(const OperandInfo& info, const std::byte* value, size_t bytes, Use use, c10::IntArrayRef result_dims);
  // What a Cast of that value has read, if this one gives that back; -1 otherwise.
  int before_cast(const CommandInfo& info, int value) const;

  std::vector<Source> sources_;
  std::vector<Place> places_;
  std::vector<Step> steps_;
  int64_t elements_ = 0;
};

// Puts it on the stream.
void launch_fused(const FusedCommand& command, const c10::npu::NPUStream& stream);

}  // namespace at::native::npu::graph
