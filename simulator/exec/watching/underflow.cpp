// See Note [Underflow] in underflow.h.

#include "exec/watching/underflow.h"

#include "core/device.h"
#include "exec/definition/op.h"
#include "exec/running/context.h"
#include "exec/watching/float_status.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace acl_sim {
namespace {

using at::Tensor;

at::ScalarType wider(at::ScalarType type, at::ScalarType wide) {
  switch (type) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
      return wide;
    case at::kComplexHalf:
    case at::kComplexFloat:
      return c10::toComplexType(wide);
    default:
      return type;
  }
}

// An execution beside the device's memory, with wide floats.
class WideContext final : public OpContext {
 public:
  WideContext(const CompiledOp& op, const std::vector<Tensor>& inputs, at::ScalarType wide)
      : op_(op), wide_(wide), inputs_(inputs.size()), outputs_(op.outputs.size()) {
    // Copies, because an operator may write to its inputs.
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].defined()) inputs_[i] = inputs[i].to(wider(inputs[i].scalar_type(), wide), false, true);
  }

  size_t num_inputs() const override { return inputs_.size(); }
  size_t num_outputs() const override { return outputs_.size(); }
  bool has_input(size_t i) const override { return i < inputs_.size() && inputs_[i].defined(); }
  const Attrs& attrs() const override { return op_.attrs; }

  Tensor in(size_t i) override {
    if (!has_input(i)) throw OpError(ACL_ERROR_OP_INPUT_NOT_MATCH, format("input %zu is not given", i));
    return inputs_[i];
  }
  Tensor in_any(size_t i) override { return in(i); }
  Tensor in_channels_last(size_t i) override { return in(i).contiguous(at::MemoryFormat::ChannelsLast); }
  std::vector<int64_t> in_values(size_t i) override { return values_of(in(i), i, op_.inputs[i].dtype); }
  at::Scalar in_scalar(size_t i) override { return scalar_of(in(i), i); }

  Tensor out(size_t i) override { return output(i, at::MemoryFormat::Contiguous); }
  Tensor out_channels_last(size_t i) override { return output(i, at::MemoryFormat::ChannelsLast); }
  Tensor out_as(size_t i, const Tensor& like) override {
    return output(i, like.dim() == 4 ? like.suggest_memory_format() : at::MemoryFormat::Contiguous);
  }
  void place_next_allocation(size_t /*i*/) override {}
  void set_out(size_t i, const Tensor& result) override {
    out(i).copy_(result.reshape(op_.seen_dims(op_.outputs.at(i))));
  }
  std::string describe() const override { return op_.describe(); }
  aclFormat in_format(size_t i) const override { return op_.inputs.at(i).format; }
  aclFormat out_format(size_t i) const override { return op_.outputs.at(i).format; }

  // What was computed, contiguous; undefined if nothing was.
  Tensor result(size_t i) const { return outputs_[i].defined() ? outputs_[i].contiguous() : Tensor(); }

 private:
  Tensor output(size_t i, at::MemoryFormat format) {
    const Operand& operand = op_.outputs.at(i);
    if (!outputs_[i].defined() || !outputs_[i].is_contiguous(format)) {
      const auto options = at::TensorOptions().dtype(wider(scalar_type(operand.dtype), wide_));
      outputs_[i] = at::empty(op_.seen_dims(operand), options.memory_format(format)).zero_();
    }
    return outputs_[i];
  }

  const CompiledOp& op_;
  const at::ScalarType wide_;
  std::vector<Tensor> inputs_, outputs_;
};

// What an operator gives that asks for the format of its operands says nothing about another format.
bool asks_for_the_format(const OpDef& def) { return def.type == "NextAfter"; }

double smallest(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT16:
      return 0x1p-24;
    case ACL_BF16:
      return 0x1p-133;
    default:
      return std::numeric_limits<float>::denorm_min();
  }
}

template <class Bits>
bool any_zero(const void* data, int64_t count) {
  constexpr Bits kMagnitude = static_cast<Bits>(-1) >> 1;
  const auto* values = static_cast<const Bits*>(data);
  return std::any_of(values, values + count, [](Bits v) { return (v & kMagnitude) == 0; });
}

bool any_zero(aclDataType dtype, const void* data, int64_t count) {
  return dtype == ACL_FLOAT ? any_zero<uint32_t>(data, count) : any_zero<uint16_t>(data, count);
}

}  // namespace

void UnderflowWatch::before() {
  if (!op_.def->on_ai_cpu) kept_.keep(op_, launch_, device_);
}

bool UnderflowWatch::holds_zeros() const {
  for (size_t i = 0; i < op_.outputs.size(); ++i) {
    const Operand& out = op_.outputs[i];
    if (is_watched(out) && any_zero(out.dtype, launch_.operand(op_.inputs.size() + i), out.elements)) return true;
  }
  return false;
}

uint32_t UnderflowWatch::after() {
  const auto is_float = [](const Operand& input) { return is_watched(input) || input.dtype == ACL_DOUBLE; };
  if (op_.def->on_ai_cpu || asks_for_the_format(*op_.def) || !holds_zeros() ||
      std::none_of(op_.inputs.begin(), op_.inputs.end(), is_float))
    return 0;

  const auto copy_of = [&](size_t i, const void* kept) {
    const Operand& operand = op_.operand(i);
    Tensor copy = at::empty(operand.dims, at::TensorOptions().dtype(scalar_type(operand.dtype)));
    if (operand.bytes == 0) return as_seen(copy, operand.order);
    if (kept || operand.host)
      copy_bytes(copy.mutable_data_ptr(), kept ? kept : launch_.operand(i), operand.bytes);
    else
      copy_from_device(device_, copy.mutable_data_ptr(), launch_.operand(i), operand.bytes);
    return as_seen(copy, operand.order);
  };
  try {
    std::vector<Tensor> inputs(op_.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!op_.inputs[i].absent) inputs[i] = copy_of(i, kept_.of(i));
    WideContext exact(op_, inputs, at::kDouble);
    op_.def->run_fn(exact);

    std::optional<WideContext> second;
    int64_t lost = 0;
    for (size_t i = 0; i < op_.outputs.size(); ++i) {
      const Operand& out = op_.outputs[i];
      const Tensor result = exact.result(i);
      if (!is_watched(out) || !result.defined()) continue;
      const Tensor sizes = result.abs();
      Tensor small = sizes.lt(smallest(out.dtype)).logical_and_(sizes.gt(0));
      small.logical_and_(copy_of(op_.inputs.size() + i, nullptr).eq(0));
      if (out.dtype == ACL_FLOAT16 && small.any().item<bool>()) {
        if (!second) op_.def->run_fn(second.emplace(op_, inputs, at::kFloat));
        const Tensor other = second->result(i);
        if (!other.defined()) continue;
        small.logical_and_(other.sub(result).abs().le(sizes.mul(0.5)));
      }
      lost += small.sum().item<int64_t>();
    }
    return static_cast<uint32_t>(std::min<int64_t>(lost, std::numeric_limits<uint32_t>::max()));
  } catch (const std::exception&) {
    return 0;  // it knows no wider type
  }
}

}  // namespace acl_sim
