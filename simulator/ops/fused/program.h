#pragma once
// The program of a fused operator: which element-wise operators run one after another on each tile.
//
// Note [Fused element-wise operators]
// A chain of element-wise operators reads and writes whole tensors once per operator, and pays for a launch each time.
// FusedElementwise runs the same operators tile by tile: what one writes, the next finds in the core's cache, and what
// only the chain itself needs is never in device memory. Each step is an operator of this device, run by its own
// kernel on tensors of one tile, so that its result, every rounding included, is what it is alone:
//   - work is divided among threads as ATen divides it for one operator, and tiles begin at multiples of their size
//   within a
//     thread's part, so that an element meets the same lane of a vector loop; where one thread would compute the
//     operator (Note [Narrow operators]), whole tiles are divided;
//   - loops without tensors (loops.h) stand in for operators whose results are exactly rounded.
// A program is a text, told by the host in the attribute `program`; items end with a semicolon:
//   @2=4,8       input 2 broadcasts to these dims
//   #3           input 3 is one value for all elements
//   Add 0 1>3:1  IR type, the slots of its operands (- where one is absent) > slot and dtype of its result; attributes
//                may follow: {approximate=s:tanh|base=f:0x1p+1|dst_type=i:1|is_result=b:1}
//   ^3,5         the slots of the outputs, in order; the last item
// Slots 0, 1, ... are the inputs. Every result has as many elements as an output, and so have inputs of which nothing
// is said.

#include "exec/definition/op.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace acl_sim::fused {

// The attributes of one step.
class StepAttrs final : public Attrs {
 public:
  using Value = std::variant<bool, int64_t, double, std::string>;
  void add(std::string name, Value value) { entries_.emplace_back(std::move(name), std::move(value)); }

  bool has(std::string_view name) const override { return find(name) != nullptr; }
  bool boolean(std::string_view name, bool otherwise) const override { return get<bool>(name, otherwise); }
  int64_t integer(std::string_view name, int64_t otherwise) const override { return get<int64_t>(name, otherwise); }
  double real(std::string_view name, double otherwise) const override { return get<double>(name, otherwise); }
  std::string text(std::string_view name, const std::string& otherwise) const override {
    return get<std::string>(name, otherwise);
  }
  std::vector<int64_t> integers(std::string_view /*name*/, std::vector<int64_t> otherwise) const override {
    return otherwise;
  }
  std::vector<double> reals(std::string_view /*name*/, std::vector<double> otherwise) const override {
    return otherwise;
  }

 private:
  const Value* find(std::string_view name) const {
    for (const auto& [key, value] : entries_) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  template <class T>
  T get(std::string_view name, const T& otherwise) const {
    const Value* value = find(name);
    if (value == nullptr) return otherwise;
    if (!std::holds_alternative<T>(*value))
      throw OpError(ACL_ERROR_INVALID_PARAM, "attribute " + std::string(name) + " of a fused step has another type");
    return std::get<T>(*value);
  }
  std::vector<std::pair<std::string, Value>> entries_;
};

struct Step {
  const OpDef* def = nullptr;
  std::vector<int> operands;  // slots; -1: absent
  int result = 0;             // slot
  aclDataType dtype = ACL_DT_UNDEFINED;
  StepAttrs attrs;
};

struct Broadcast {
  int input = 0;
  std::vector<int64_t> dims;
};

struct Program {
  std::vector<Step> steps;
  std::vector<Broadcast> broadcasts;
  std::vector<bool> single;  // of each input: one value for all elements
  std::vector<int> outputs;  // slots
  int inputs = 0;            // slots of inputs, then those of results
  int slots = 0;
  std::vector<int> last_use;  // of each slot: the last step that reads it, -1 if none does
};

// Throws OpError for a text that is not a program for that many inputs and outputs.
std::unique_ptr<const Program> parse(std::string_view text, size_t inputs, size_t outputs);

}  // namespace acl_sim::fused
