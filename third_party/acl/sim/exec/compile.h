#pragma once
// "Compiling" an operator: checking a type with given shapes, dtypes, formats and attributes against its definition,
// once, and keeping what execution needs.
//
// Note [Compile cache]
// The key is the launch as the caller describes it, as a row of 64-bit words. Each thread keeps a small table of what
// it used last, behind it is one table for all. Compiled operators are never freed, so a pointer to one is always good.

#include <acl/acl.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "exec/op.h"
#include "runtime/attr.h"
#include "runtime/tensor_desc.h"

namespace acl_sim [[gnu::visibility("hidden")]] {

struct Frame;

struct Operand {
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_ND;
  bool host = false;
  bool absent = false;  // an optional input that is not given
  std::vector<int64_t> dims;
  int64_t elements = 0;
  size_t bytes = 0;
};

class CompiledAttrs final : public Attrs {
 public:
  explicit CompiledAttrs(const aclopAttr* attr);
  bool has(std::string_view name) const override;
  bool boolean(std::string_view name, bool otherwise) const override;
  int64_t integer(std::string_view name, int64_t otherwise) const override;
  double real(std::string_view name, double otherwise) const override;
  std::string text(std::string_view name, const std::string& otherwise) const override;
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> otherwise) const override;
  std::vector<double> reals(std::string_view name, std::vector<double> otherwise) const override;
  std::string describe() const;
  bool all_finite() const;  // no number among them is infinite or NaN

 private:
  friend void check_attrs(const OpDef& def, const CompiledAttrs& attrs);
  const aclopAttr::Entry* find(std::string_view name) const;
  [[noreturn]] void refuse(const aclopAttr::Entry& entry, const char* wanted) const;
  std::vector<uint64_t> words_;
  size_t used_ = 0;
  template <class F>
  void each(F&& visit) const;
};

struct CompiledOp {
  CompiledOp(const OpDef& def, const aclopAttr* attr) : def(&def), attrs(attr) {}

  const OpDef* def;
  CompiledAttrs attrs;
  std::vector<Operand> inputs, outputs;
  int64_t elements = 0;      // of all operands together
  bool tiny = false;         // small enough for the calling thread
  bool tiny_loop = false;    // def->tiny_fn may run it, if its operands are stored plainly
  bool host_inputs = false;  // some input comes by value
  uint64_t hash = 0;
  std::vector<uint64_t> key;
  mutable std::atomic<Frame*> frame{nullptr};  // tensors kept for the next execution, see context.cpp

  const Operand& operand(size_t i) const { return i < inputs.size() ? inputs[i] : outputs[i - inputs.size()]; }
  std::string describe() const;  // type, inputs and outputs
};

struct Description {
  const char* type;
  int inputs;
  const aclTensorDesc* const* input;
  int outputs;
  const aclTensorDesc* const* output;
  const aclopAttr* attr;
};

// The operator for a description, compiled if that has not happened yet. Throws Error with ACL's code and the reason.
// With only_known, an operator that has not been compiled throws ACL_ERROR_OP_NOT_FOUND.
const CompiledOp& compiled(const Description& d, bool only_known, bool* fresh);

}  // namespace gnu::visibility("hidden")
