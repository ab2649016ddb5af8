// Element-wise operators of three operands: clamp, lerp, select, fused multiply and divide.

#include "ops/common.h"

#include <ATen/CPUFunctions.h>

namespace acl_sim {
namespace {

using at::Tensor;

const DtypeSet kRealAndBool = kRealTypes | dtype_bit(ACL_BOOL);
const DtypeSet kFloatAndComplex =
    kFloatTypes | dtype_bit(ACL_COMPLEX64) | dtype_bit(ACL_COMPLEX128) | dtype_bit(ACL_COMPLEX32);

// x, least, most; either bound may be absent, and may be a host value or a tensor that broadcasts.
void clip_by_value(OpContext& c) {
  const Tensor x = c.in_any(0);
  const Tensor least = operand(c, 1, x.scalar_type()), most = operand(c, 2, x.scalar_type());
  const auto single = [](const Tensor& t) { return t.dim() == 0 && t.is_cpu(); };
  if (single(least) && single(most)) {
    Tensor y = out_for(c, x);
    at::cpu::clamp_out(y, x, std::optional(least.item()), std::optional(most.item()));
    return;
  }
  Tensor y = out_for(c, x, least, most);
  at::cpu::clamp_out(y, x, std::optional(least), std::optional(most));
}
SIM_OP(ClipByValue).inputs(3).dtypes(kRealAndBool).run(clip_by_value);

void lerp(OpContext& c) {
  const Tensor start = c.in_any(0), end = c.in_any(1);
  const Tensor weight = operand(c, 2, start.scalar_type());
  Tensor y = out_for(c, start, end, weight);
  if (weight.dim() == 0) {
    at::cpu::lerp_out(y, start, end, weight.item());
  } else {
    at::cpu::lerp_out(y, start, end, weight);
  }
}
SIM_OP(Lerp).inputs(3).dtypes(kFloatAndComplex).run(lerp);

void addcmul(OpContext& c) {
  const Tensor x = c.in_any(0);
  const Tensor a = operand(c, 1, x.scalar_type()), b = operand(c, 2, x.scalar_type());
  Tensor y = out_for(c, x, a, b);
  at::cpu::addcmul_out(y, x, a, b, c.in_scalar(3));
}
SIM_OP(Addcmul).inputs(4).dtypes(kComputeTypes).run(addcmul);

void addcdiv(OpContext& c) {
  const Tensor x = c.in_any(0);
  const Tensor a = operand(c, 1, x.scalar_type()), b = operand(c, 2, x.scalar_type());
  Tensor y = out_for(c, x, a, b);
  at::cpu::addcdiv_out(y, x, a, b, c.in_scalar(3));
}
SIM_OP(Addcdiv).inputs(4).dtypes(kFloatAndComplex).run(addcdiv);

// condition ? x1 : x2
void select(OpContext& c) {
  const Tensor condition = c.in_any(0);
  const Tensor a = c.in_any(1), b = c.in_any(2);
  Tensor y = out_for(c, condition, a, b);
  at::cpu::where_out(y, condition, a, b);
}
SIM_OP(Select).inputs(3).dtypes(kAllTypes).run(select);

// x where mask is false, else value
void masked_fill(OpContext& c) {
  const Tensor x = c.in_any(0), mask = c.in_any(1);
  Tensor value = operand(c, 2, x.scalar_type());
  Tensor y = out_for(c, x, mask);
  if (value.scalar_type() != x.scalar_type()) value = value.to(x.scalar_type());
  at::cpu::where_out(y, mask, value, x);
}
SIM_OP(MaskedFill).inputs(3).dtypes(kAllTypes).run(masked_fill);

}  // namespace
}  // namespace acl_sim
