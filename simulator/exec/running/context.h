#pragma once
// One execution of a compiled operator: the tensors that its operands become.
//
// Note [Frames]
// Making a tensor costs more than a small operator. A compiled operator therefore keeps the tensors of its last
// execution, a *frame*, and only their addresses are changed for the next. A frame is kept only if nobody else holds
// one of its tensors and the operator left their shapes alone.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <shared_mutex>

#include "core/device.h"
#include "core/task.h"
#include "exec/compilation/compile.h"
#include "exec/definition/op.h"
#include "exec/layout/layout.h"
#include "exec/running/operands.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

at::ScalarType scalar_type(aclDataType dtype);

// A tensor in the dims of its descriptor, in those that the operator sees.
at::Tensor as_seen(const at::Tensor& described, HostOrder order);

// The device's layout map if it has one, and made if it has none.
LayoutMap* layout_or_null(Device& device);
LayoutMap& layout_of(Device& device);

// OpContext's in_values() and in_scalar() of input number `input`.
std::vector<int64_t> values_of(const at::Tensor& tensor, size_t input, aclDataType dtype);
at::Scalar scalar_of(const at::Tensor& tensor, size_t input);

class RunContext final : public OpContext {
 public:
  RunContext(const CompiledOp& op, OpLaunch& launch, Device& device);
  ~RunContext() override;

  size_t num_inputs() const override { return op_.inputs.size(); }
  size_t num_outputs() const override { return op_.outputs.size(); }
  bool has_input(size_t i) const override { return i < op_.inputs.size() && !op_.inputs[i].absent; }
  const Attrs& attrs() const override { return op_.attrs; }

  at::Tensor in(size_t i) override;
  at::Tensor in_any(size_t i) override;
  at::Tensor in_channels_last(size_t i) override;
  std::vector<int64_t> in_values(size_t i) override;
  at::Scalar in_scalar(size_t i) override;
  at::Tensor out(size_t i) override;
  at::Tensor out_channels_last(size_t i) override;
  at::Tensor out_as(size_t i, const at::Tensor& like) override;
  void place_next_allocation(size_t i) override;
  void set_out(size_t i, const at::Tensor& result) override;
  std::string describe() const override { return op_.describe(); }
  aclFormat in_format(size_t i) const override { return op_.inputs[checked_input(i)].format; }
  aclFormat out_format(size_t i) const override { return op_.outputs[checked_output(i)].format; }
  at::IntArrayRef out_dims(size_t i) const override { return op_.seen_dims(op_.outputs[checked_output(i)]); }
  CubeRounding rounding() const override { return op_.rounding; }
  Device& device() { return device_; }
  const CompiledOp& op() const { return op_; }

  // Completes outputs and checks that the operator wrote where it was told. Call once it has run without throwing.
  void finish();
  // Rounds fp32 outputs to fp16, where the operator is computed in that.
  void narrow_outputs();
  // Multiplies every floating output, for fault injection.
  void scale_outputs(double factor);

 private:
  size_t checked_input(size_t i) const;
  size_t checked_output(size_t i) const;
  // The tensor of an operand that is stored plainly, from the frame.
  const at::Tensor& plain(size_t operand);
  // From here on layouts are looked up, because an operand is stored otherwise or an operator asks for it.
  Operands& with_layouts();

  const CompiledOp& op_;
  OpLaunch& launch_;
  Device& device_;
  Frame* frame_;
  bool layouts_ = false;  // some operand may be stored otherwise than plainly
  std::shared_lock<std::shared_mutex> use_;
  uint32_t handed_out_ = 0;
  bool finished_ = false;  // finish() found the outputs in order
  c10::SmallVector<OperandView, 8> input_views_, output_views_;
  std::optional<Operands> operands_;
};

}  // namespace acl_sim
