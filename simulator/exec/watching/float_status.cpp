// See Note [Float status] in float_status.h; and the operators that read and clear the register.

#include "exec/watching/float_status.h"

#include "core/device.h"
#include "exec/definition/op.h"
#include "exec/running/context.h"
#include "exec/watching/overlap.h"

#include <algorithm>
#include <cstring>

namespace acl_sim {
namespace {

// A float is infinite or NaN when all bits of its exponent are set.
template <class Bits, Bits kExponent>
bool all_finite(const void* data, int64_t count) {
  constexpr int64_t kBlock = 4096;
  const auto* values = static_cast<const Bits*>(data);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    Bits found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = begin; i < end; ++i) found |= static_cast<Bits>((values[i] & kExponent) == kExponent);
    if (found) return false;
  }
  return true;
}

bool all_finite(aclDataType dtype, const void* data, int64_t count) {
  switch (dtype) {
    case ACL_FLOAT:
      return all_finite<uint32_t, 0x7F800000>(data, count);
    case ACL_FLOAT16:
      return all_finite<uint16_t, 0x7C00>(data, count);
    case ACL_BF16:
      return all_finite<uint16_t, 0x7F80>(data, count);
    case ACL_DOUBLE:
      return all_finite<uint64_t, 0x7FF0000000000000>(data, count);
    default:
      return true;
  }
}

}  // namespace

bool FloatWatch::finite(size_t i) {
  const auto& operand = op_.operand(i);
  return operand.absent || all_finite(operand.dtype, launch_.operand(i), operand.elements);
}

void FloatWatch::before() {
  if (op_.def->on_ai_cpu) return;
  for (size_t i = 0; i < op_.inputs.size(); ++i) {
    if (!may_be_overwritten(op_, launch_, i)) continue;
    inputs_.resize(op_.inputs.size(), Known::Not);
    inputs_[i] = finite(i) ? Known::Finite : Known::Infinite;
  }
}

bool FloatWatch::after() {
  if (op_.def->on_ai_cpu) return false;
  bool made = false;
  for (size_t i = 0; i < op_.outputs.size() && !made; ++i)
    made = is_watched(op_.outputs[i]) && !finite(op_.inputs.size() + i);
  if (!made || !op_.attrs.all_finite()) return false;
  for (size_t i = 0; i < op_.inputs.size(); ++i) {
    const Known known = inputs_.empty() ? Known::Not : inputs_[i];
    if (known == Known::Not ? !finite(i) : known == Known::Infinite) return false;
  }
  return true;
}

// ---- the operators

namespace {

constexpr int64_t kStatusElements = 8;

// Throws where the operator is computed beside the device, which has no register.
Device& device_of(OpContext& c) { return dynamic_cast<RunContext&>(c).device(); }

void check_status(const at::Tensor& t, const char* what) {
  if (t.numel() != kStatusElements && t.numel() != 2 * kStatusElements)
    throw OpError(ACL_ERROR_OP_INPUT_NOT_MATCH,
                  format("the %s must have 8 or 16 elements, not %lld", what, static_cast<long long>(t.numel())));
}

void zero_output(OpContext& c) {
  const at::Tensor out = c.out(0);
  check_status(out, "output");
  std::memset(out.mutable_data_ptr(), 0, out.nbytes());
}

void alloc_status(OpContext& c) {
  device_of(c).watches_floats.store(true, std::memory_order_relaxed);
  zero_output(c);
}

// CANN's operator writes the status into its input, too: hosts read either.
void get_status(OpContext& c) {
  const Device& device = device_of(c);
  zero_output(c);
  const auto status = static_cast<float>(device.float_status.load(std::memory_order_relaxed));
  const at::Tensor in = c.in(0);
  check_status(in, "input");
  std::memset(in.mutable_data_ptr(), 0, in.nbytes());
  for (const at::Tensor& t : {in, c.out(0)}) *t.mutable_data_ptr<float>() = status;
}

void get_status_v2(OpContext& c) {
  const Device& device = device_of(c);
  zero_output(c);
  auto* words = c.out(0).mutable_data_ptr<int32_t>();
  words[0] = static_cast<int32_t>(device.float_status.load(std::memory_order_relaxed));
  if (c.out(0).numel() > kStatusElements) words[1] = static_cast<int32_t>(device.underflows.load());
}

void clear_status(OpContext& c) {
  device_of(c).clear_float_status();
  if (c.num_outputs() > 0) zero_output(c);
}

SIM_OP(NPUAllocFloatStatus).inputs(0).run(alloc_status);
SIM_OP(NPUGetFloatStatus).inputs(1).dtypes(dtype_bit(ACL_FLOAT)).run(get_status);
SIM_OP(NPUClearFloatStatus).inputs(1).dtypes(dtype_bit(ACL_FLOAT)).run(clear_status);
SIM_OP(NPUGetFloatStatusV2).inputs(0).run(get_status_v2);
SIM_OP(NPUClearFloatStatusV2).inputs(0).outputs(0).run(clear_status);

}  // namespace
}  // namespace acl_sim
