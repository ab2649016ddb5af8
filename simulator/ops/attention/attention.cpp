// Attention in blocks: no matrix of scores is kept, neither on the device nor in scratch memory.

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include "ops/common.h"

namespace acl_sim {
namespace {

using at::Tensor;

std::optional<Tensor> optional_in(OpContext& c, size_t i) {
  return c.has_input(i) ? std::optional<Tensor>(c.in(i)) : std::nullopt;
}

// query, key, value (batch, head, position, width), mask, scale -> attention (batch, position, head, width), logsumexp
// (batch, position, head)
void attention(OpContext& c) {
  const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      c.in(0), c.in(1), c.in(2), 0.0, c.attrs().boolean("is_causal", false), optional_in(c, 3),
      c.in_scalar(4).toDouble());
  c.set_out(0, out.transpose(1, 2));
  c.set_out(1, logsumexp.transpose(1, 2));
}
SIM_OP(DotProductAttention)
    .inputs(5)
    .outputs(2)
    .dtypes({kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes | dtype_bit(ACL_BOOL), kFloatTypes})
    .attrs({"input_layout:str", "is_causal:bool"})
    .on_cube()
    .run(attention);

// gradient, query, key, value, attention and logsumexp as they were made, mask, scale -> gradients of query, key, value
void attention_grad(OpContext& c) {
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      c.in(0), c.in(1), c.in(2), c.in(3), c.in(4).transpose(1, 2), c.in(5).transpose(1, 2), 0.0,
      c.attrs().boolean("is_causal", false), optional_in(c, 6), c.in_scalar(7).toDouble());
  c.set_out(0, dq.transpose(1, 2));
  c.set_out(1, dk.transpose(1, 2));
  c.set_out(2, dv.transpose(1, 2));
}
SIM_OP(DotProductAttentionGrad)
    .inputs(8)
    .outputs(3)
    .dtypes({kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes,
             kFloatTypes | dtype_bit(ACL_BOOL), kFloatTypes})
    .attrs({"input_layout:str", "is_causal:bool"})
    .on_cube()
    .run(attention_grad);

}  // namespace
}  // namespace acl_sim
