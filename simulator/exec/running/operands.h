#pragma once
// The layout side of one operator execution: which tensors an operator gets for its operands, given how the device
// stores them (layout.h), and what has to be written back when it is done. The context that runs an operator owns one
// of these per execution and forwards in(), out() and kin to it.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "exec/layout/layout.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

// Memory of an operand as the executing thread may dereference it.
struct OperandView {
  void* data = nullptr;
  at::IntArrayRef dims;  // as the operator sees it: of images NCHW in any order
  at::ScalarType dtype = at::ScalarType::Undefined;
  size_t bytes = 0;
  bool on_device = true;  // false: a host value by copy, never tagged
  HostOrder order = HostOrder::kAsDims;
};

class Operands {
 public:
  // The layouts of inputs are looked up here, before any output is prepared. The views must outlive this object.
  Operands(LayoutMap& map, at::ArrayRef<OperandView> inputs, at::ArrayRef<OperandView> outputs);

  at::Tensor in(size_t i);
  at::Tensor in_any(size_t i);
  at::Tensor in_channels_last(size_t i);
  at::Tensor out(size_t i) { return output(i, false); }
  at::Tensor out_channels_last(size_t i) { return output(i, !LayoutMap::layout_free(outputs_[i].dims)); }
  at::Tensor out_as(size_t i, const at::Tensor& like);
  // Takes over a result that the operator's kernel allocated itself.
  void set_out(size_t i, const at::Tensor& result);

  // Copies what was computed beside the output's memory into it and records layouts. Call once, after the operator
  // has run without throwing.
  void finish();

 private:
  struct Input {
    bool channels_last = false;  // stored as such
    bool mixed = false;          // neither channels-last nor plain
    at::Tensor plain, rows;      // reordered copies, once made
  };
  struct Output {
    bool asked = false;
    bool channels_last = false;
    at::Tensor tensor;
    bool beside = false;  // tensor is scratch
  };

  at::Tensor output(size_t i, bool channels_last);
  at::Tensor reordered_rows(size_t i);
  bool must_go_beside(size_t i, bool channels_last) const;

  LayoutMap& map_;
  at::ArrayRef<OperandView> inputs_, outputs_;
  c10::SmallVector<Input, 8> in_;
  c10::SmallVector<Output, 4> out_;
};

}  // namespace acl_sim
