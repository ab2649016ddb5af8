#pragma once
// "Compiling" an operator: checking a type with given shapes, dtypes, formats and attributes against its definition,
// once, and keeping what execution needs.
//
// compile_cache.h finds one again.

#include <acl/acl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/compilation/small.h"
#include "exec/definition/attr.h"
#include "exec/definition/op.h"
#include "exec/definition/tensor_desc.h"
#include "exec/layout/layout.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Frame;

struct Operand {
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_ND;
  bool host = false;
  bool absent = false;  // an optional input that is not given
  std::vector<int64_t> dims;
  HostOrder order = HostOrder::kAsDims;
  std::vector<int64_t> logical;  // dims as NCHW, if the order is another
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
  ~CompiledOp();
  CompiledOp(const CompiledOp&) = delete;
  CompiledOp& operator=(const CompiledOp&) = delete;

  const OpDef* def;
  CompiledAttrs attrs;
  std::vector<Operand> inputs, outputs;
  int64_t elements = 0;                        // of all operands together
  bool tiny = false;                           // small enough for the calling thread
  bool modest = false;                         // small enough for it on a busy machine, see core/load.h
  bool narrow = false;                         // one thread computes it: Note [Narrow operators]
  int8_t kernel = -1;                          // of the operator's own; -1: its rule decides, Note [Choices]
  bool tiny_loop = false;                      // def->tiny_fn may run it, if its operands are stored plainly
  SmallFn small = nullptr;                     // may run it, if its operands are stored plainly: Note [Small operators]
  bool host_inputs = false;                    // some input comes by value
  CubeRounding rounding = CubeRounding::None;  // of fp32 operands, see Note [Cube precision]
  bool reordered = false;                      // some operand's order is not that of its dims
  uint64_t hash = 0;
  std::vector<uint64_t> key;
  bool kept = false;                      // never evicted; under the lock of its part of the cache
  mutable std::atomic<uint32_t> pins{0};  // by graphs, which keep it from being evicted
  mutable std::atomic<uint64_t> used{0};  // the cache's generation at its last use
  mutable std::atomic<uint32_t> text{0};  // what profiles call it, once one has asked; see exec/watching/profile.cpp
  mutable std::atomic<Frame*> frame{nullptr};  // tensors kept for the next execution, see context.cpp

  // What the operator is given.
  const std::vector<int64_t>& seen_dims(const Operand& o) const {
    return o.order == HostOrder::kAsDims ? o.dims : o.logical;
  }
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

// Throws Error with ACL's code and the reason.
std::unique_ptr<CompiledOp> compile(const Description& d, CubeRounding rounding);

}  // namespace acl_sim
