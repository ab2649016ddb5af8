// Attention in blocks: no matrix of scores is kept, neither on the device nor in scratch memory.

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <array>
#include <string>
#include "ops/common.h"

namespace acl_sim {
namespace {

using at::Tensor;

std::optional<Tensor> optional_in(OpContext& c, size_t i) {
  return c.has_input(i) ? std::optional<Tensor>(c.in(i)) : std::nullopt;
}

// Query, key and value as (batch, head, position, width), which input_layout calls BNSD; BSND has the heads behind the
// positions, as projections leave them.
std::array<Tensor, 3> heads_in(OpContext& c, size_t first) {
  const std::string layout = c.attrs().text("input_layout", "BNSD");
  if (layout != "BNSD" && layout != "BSND")
    throw OpError(ACL_ERROR_INVALID_PARAM, "input_layout is BNSD or BSND, not " + layout);
  std::array<Tensor, 3> t{c.in(first), c.in(first + 1), c.in(first + 2)};
  if (layout == "BSND")
    for (Tensor& each : t) each = each.transpose(1, 2);
  return t;
}

// query, key, value, mask, scale -> attention (batch, position, head, width), logsumexp (batch, position, head)
void attention(OpContext& c) {
  const auto [q, k, v] = heads_in(c, 0);
  const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      q, k, v, 0.0, c.attrs().boolean("is_causal", false), optional_in(c, 3), c.in_scalar(4).toDouble());
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

// gradient (as the attention), query, key, value, attention and logsumexp as they were made, mask, scale -> gradients
// of query, key, value (batch, position, head, width)
void attention_grad(OpContext& c) {
  const auto [q, k, v] = heads_in(c, 1);
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      c.in(0).transpose(1, 2), q, k, v, c.in(4).transpose(1, 2), c.in(5).transpose(1, 2), 0.0,
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
