// Attention in blocks: no matrix of scores is kept, neither on the device nor in scratch memory.

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/attention/flash.h"
#include "ops/attention/flash_tasks.h"
#include "ops/common.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

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

// Upstream's kernel has fp64.
bool by_upstream(const Tensor& query) { return query.scalar_type() == at::kDouble; }

struct Sequence {
  int64_t batch, queries;
};

// The operands of one call as heads.
struct Operands {
  Tensor query, key, value, mask;
  float scale;
  bool causal;
  std::vector<Sequence> sequences;

  Operands(OpContext& c, size_t first, size_t mask_at)
      : mask(optional_in(c, mask_at)),
        scale(c.in_scalar(mask_at + 1).toFloat()),
        causal(c.attrs().boolean("is_causal", false)) {
    const auto [q, k, v] = heads_in(c, first);
    query = widen(q);
    key = widen(k);
    value = widen(v);
    if (query.size(1) % key.size(1) != 0) refuse("the heads of query must be a multiple of those of key");
    for (int64_t b = 0; b < query.size(0); ++b) sequences.push_back({b, query.size(2)});
  }

  // Of the query's heads so many share a key's.
  int64_t group() const { return query.size(1) / key.size(1); }

  FlashHead head(int64_t batch, int64_t h) const {
    FlashHead head;
    head.queries = query.size(2);
    head.keys = key.size(2);
    head.query = flash_rows<const float>(query, batch, h);
    head.key = flash_rows<const float>(key, batch, h / group());
    head.value = flash_rows<const float>(value, batch, h / group());
    head.scale = scale;
    if (causal) head.after = 0;
    if (!mask.defined()) return head;
    const int64_t rank = mask.dim();
    const auto stride = [&](int64_t dim) { return dim < 0 || mask.size(dim) == 1 ? 0 : mask.stride(dim); };
    const int64_t place = batch * stride(rank - 4) + h * stride(rank - 3);
    const char* from = static_cast<const char*>(mask.const_data_ptr()) + place * mask.element_size();
    if (mask.scalar_type() == at::kBool) {
      head.mask = reinterpret_cast<const uint8_t*>(from);
      head.mask_shows = true;
      head.mask_row = stride(rank - 2);
      head.mask_column = stride(rank - 1);
    } else {
      head.bias = from;
      head.bias_type = mask.scalar_type();
      head.bias_row = stride(rank - 2);
      head.bias_column = stride(rank - 1);
    }
    return head;
  }
};

// query, key, value, mask, scale -> attention (batch, position, head, width), logsumexp (batch, position, head)
void attention(OpContext& c) {
  if (by_upstream(c.in_any(0))) {
    const auto [q, k, v] = heads_in(c, 0);
    const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, c.attrs().boolean("is_causal", false), some(optional_in(c, 3)), c.in_scalar(4).toDouble());
    c.set_out(0, out.transpose(1, 2));
    c.set_out(1, logsumexp.transpose(1, 2));
    return;
  }
  const Operands o(c, 0, 3);
  const Tensor result = c.out(0), logsumexp = c.out(1);
  const Tensor made = result.scalar_type() == at::kFloat ? result : at::empty(result.sizes(), at::kFloat);
  const Tensor out = made.transpose(1, 2);
  const int64_t heads = o.query.size(1);
  flash_forward_all(
      o.sequences, heads, [&](const Sequence& s, int64_t h) { return o.head(s.batch, h); },
      [&](const Sequence& s, int64_t h) { return flash_rows<float>(out, s.batch, h); },
      [&](const Sequence& s, int64_t h, int64_t first, int64_t count, const float* max, const float* sum) {
        float* to = logsumexp.mutable_data_ptr<float>() + (s.batch * s.queries + first) * heads + h;
        for (int64_t i = 0; i < count; ++i) {
          to[i * heads] = sum[i] == 0 ? -std::numeric_limits<float>::infinity() : max[i] + std::log(sum[i]);
        }
      });
  if (made.data_ptr() != result.data_ptr()) result.copy_(made);
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
  if (by_upstream(c.in_any(1))) {
    const auto [q, k, v] = heads_in(c, 1);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        c.in(0).transpose(1, 2), q, k, v, c.in(4).transpose(1, 2), c.in(5).transpose(1, 2), 0.0,
        c.attrs().boolean("is_causal", false), some(optional_in(c, 6)), c.in_scalar(7).toDouble());
    c.set_out(0, dq.transpose(1, 2));
    c.set_out(1, dk.transpose(1, 2));
    c.set_out(2, dv.transpose(1, 2));
    return;
  }
  const Operands o(c, 1, 6);
  const Tensor dout = widen(c.in(0)).transpose(1, 2), out = widen(c.in(4)).transpose(1, 2), logsumexp = c.in(5);
  std::array<Tensor, 3> made, gradients;
  for (size_t i = 0; i < 3; ++i) {
    made[i] = at::zeros(c.out_dims(i), at::kFloat);
    gradients[i] = made[i].transpose(1, 2);
  }
  const int64_t heads = o.query.size(1), queries = o.query.size(2), key_heads = o.key.size(1), group = o.group();
  flash_tasks(o.query.size(0) * key_heads, false, [&](int64_t task) {
    const int64_t batch = task / key_heads, key_head = task % key_heads;
    std::vector<float> max(static_cast<size_t>(queries)), sum(max.size());
    for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
      const float* from = logsumexp.const_data_ptr<float>() + batch * queries * heads + h;
      for (size_t i = 0; i < max.size(); ++i) {
        max[i] = from[static_cast<int64_t>(i) * heads];
        sum[i] = std::isinf(max[i]) ? 0.0F : 1.0F;
      }
      FlashGradient g;
      g.dout = flash_rows<const float>(dout, batch, h);
      g.out = flash_rows<const float>(out, batch, h);
      g.max = max.data();
      g.sum = sum.data();
      g.dquery = flash_rows<float>(gradients[0], batch, h);
      g.dkey = flash_rows<float>(gradients[1], batch, key_head);
      g.dvalue = flash_rows<float>(gradients[2], batch, key_head);
      flash_backward(o.head(batch, h), g);
    }
  });
  for (size_t i = 0; i < 3; ++i) c.out(i).copy_(made[i]);
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
