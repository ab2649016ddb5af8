#pragma once
// What a graph wants to know of a command: its operands, and whether it may be a step of a fused one.

#include <ATen/native/npu/frame/command/Encoder.h>
#include <acl/acl_base.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/flat_hash_map.h>

#include <memory>
#include <string>
#include <vector>

namespace at::native::npu::graph {

struct OperandInfo {
  bool absent = true;
  bool host = false;
  aclDataType dtype = ACL_DT_UNDEFINED;
  int format = ACL_FORMAT_UNDEFINED;
  c10::IntArrayRef dims;  // into the command's key
  int64_t elements = 0;
};

// How an operator treats its operands.
enum class Kind : uint8_t {
  Other,  // not element by element, or the device's fused operator does not know it
  Whole,  // element by element; how it rounds depends on where an element lies, so operands may not broadcast
  Exact,  // element by element, exactly rounded or chosen from the operands: operands may broadcast
};

// What an operator that computes nothing does with its first input (Note [Redundant commands]).
enum class Moves : uint8_t {
  No,
  Copy,    // to another place
  Cast,    // to another type
  Format,  // between formats
  Order,   // of dimensions; the second input is the permutation
  Gather,  // a view, or an expanded tensor, into its own memory
};

// Whether an operator fills its output with one value.
enum class Fills : uint8_t { No, WithInput, WithZeros };  // WithInput: the second one, on the host

struct CommandInfo {
  c10::intrusive_ptr<const Prepared> prepared;
  const char* ir = nullptr;
  std::vector<OperandInfo> inputs, outputs;
  std::string attributes;  // as a program tells them: {name=i:1|...}, or nothing
  int64_t elements = 0;    // of the only output
  Kind kind = Kind::Other;
  bool fusible = false;
  bool pure = false;  // does nothing but write all of its outputs
  Fills fills = Fills::No;
  Moves moves = Moves::No;
};

size_t bytes_of(aclDataType dtype);
// Whether every number of the first type is one of the second, and comes back as it was.
bool holds_all_of(aclDataType narrow, aclDataType wide);

// The infos of the commands seen, by what is prepared for them.
class CommandInfos {
 public:
  const CommandInfo& get(const Prepared& prepared);
  // Forgets all of them if they are many. Those that get() gave stay until then.
  void trim() {
    if (infos_.size() >= kMost) infos_.clear();
  }

 private:
  static constexpr size_t kMost = 8192;
  ska::flat_hash_map<const Prepared*, std::unique_ptr<CommandInfo>> infos_;
};

}  // namespace at::native::npu::graph
