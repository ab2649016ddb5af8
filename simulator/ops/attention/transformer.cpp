// Multi-head attention with its projections, and its gradient. Projections are (out, in), rows are batch * length.

#include <cmath>

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

struct Heads {
  int64_t heads, width, source, target;
  double keep;
  explicit Heads(OpContext& c)
      : heads(c.attrs().integer("attn_head_num", 1)),
        width(c.attrs().integer("attn_dim_per_head", 1)),
        source(c.attrs().integer("src_len", 1)),
        target(c.attrs().integer("tgt_len", 1)),
        keep(c.attrs().real("keep_prob", 1)) {}
  double scale() const { return 1 / std::sqrt(static_cast<double>(width)); }
  Tensor split(const Tensor& rows, int64_t length) const {
    return rows.view({-1, length, heads, width}).transpose(1, 2);
  }
  Tensor join(const Tensor& t) const { return t.transpose(1, 2).reshape({-1, heads * width}); }
};

// What dropout multiplies with: 0 or 1 / keep, from a mask of bits.
Tensor factors(const Tensor& mask, const Tensor& like, double keep) {
  if (keep >= 1) return {};
  const int64_t n = like.numel();
  if (8 * mask.numel() < n) refuse("MultiHeadAttention: the dropout mask is too short");
  const Tensor out = at::empty(like.sizes(), at::kFloat);
  const auto* bytes = mask.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < n; ++i) {
    out.mutable_data_ptr<float>()[i] = (bytes[i >> 3] >> (i & 7) & 1) != 0 ? static_cast<float>(1 / keep) : 0.0F;
  }
  return out;
}

Tensor project(const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Tensor y = at::mm(x, w.t());
  return bias.defined() ? y + bias : y;
}

// query, key, value, their weights, attn_mask, out_proj_weight, the four biases, dropout mask
// -> y, dropout mask, query, key, value by heads, softmax, softmax with dropout, context
// Every product is stored in the operands' dtype, as the cube unit does it, before it is used again.
void attention(OpContext& c) {
  const Heads p(c);
  const at::ScalarType type = c.in(0).scalar_type();
  const auto stored = [&](const Tensor& t) { return widen(t.to(type)); };
  const auto in = [&](size_t i) { return widen(optional_in(c, i)); };
  const Tensor q = p.split(stored(stored(project(in(0), in(3), in(8))) * p.scale()), p.target);
  const Tensor k = p.split(stored(project(in(1), in(4), in(9))), p.source);
  const Tensor v = p.split(stored(project(in(2), in(5), in(10))), p.source);
  Tensor scores = stored(at::matmul(q, k.transpose(-2, -1)));
  if (const Tensor mask = in(6); mask.defined()) scores = stored(scores + mask);
  const Tensor soft = at::softmax(scores, -1);
  const Tensor bits = c.in(12), factor = factors(bits, soft, p.keep);
  const Tensor dropped = stored(factor.defined() ? stored(soft) * factor : soft);
  const Tensor context = stored(p.join(at::matmul(dropped, v)));
  const Tensor results[] = {project(context, in(7), in(11)), bits, q, k, v, soft, dropped, context};
  for (size_t i = 0; i < 8; ++i) c.out(i).copy_(results[i]);
}
const std::vector<std::string> kAttrs = {"attn_head_num:int", "attn_dim_per_head:int", "src_len:int",
                                         "tgt_len:int",       "keep_prob:float",       "softmax_use_float:bool"};
const std::vector<std::string> kNeeded = {"attn_head_num", "attn_dim_per_head", "src_len",
                                          "tgt_len",       "keep_prob",         "softmax_use_float"};
const DtypeSet kFloatOrMask = kFloatTypes | dtype_bit(ACL_UINT8);
SIM_OP(MultiHeadAttention)
    .inputs(13)
    .outputs(8)
    .dtypes(kFloatOrMask)
    .attrs(kAttrs)
    .require(kNeeded)
    .on_cube()
    .run(attention);

// query, key, value, their weights, out_proj_weight, query, key, value by heads, softmax, softmax with dropout,
// context, y_grad, dropout mask -> gradients of the four weights, of query, key, value, of the four biases
void attention_grad(OpContext& c) {
  const Heads p(c);
  const auto in = [&](size_t i) { return widen(c.in(i)); };
  const Tensor q = in(7), k = in(8), v = in(9), soft = in(10), dropped = in(11), context = in(12), dy = in(13);
  const Tensor dcontext = p.split(at::mm(dy, in(6)), p.target);
  const Tensor dv = p.join(at::matmul(dropped.transpose(-2, -1), dcontext));
  Tensor dsoft = at::matmul(dcontext, v.transpose(-2, -1));
  if (const Tensor factor = factors(c.in(14), soft, p.keep); factor.defined()) dsoft = dsoft * factor;
  const Tensor dscores = (dsoft - (dsoft * soft).sum(-1, true)) * soft;
  const Tensor dq = p.join(at::matmul(dscores, k)) * p.scale();
  const Tensor dk = p.join(at::matmul(dscores.transpose(-2, -1), q));
  const Tensor results[] = {at::mm(dq.t(), in(0)),
                            at::mm(dk.t(), in(1)),
                            at::mm(dv.t(), in(2)),
                            at::mm(dy.t(), context),
                            at::mm(dq, in(3)),
                            at::mm(dk, in(4)),
                            at::mm(dv, in(5)),
                            dq.sum(0),
                            dk.sum(0),
                            dv.sum(0),
                            dy.sum(0)};
  for (size_t i = 0; i < 11; ++i) c.out(i).copy_(results[i]);
}
SIM_OP(MultiHeadAttentionGrad)
    .inputs(15)
    .outputs(11)
    .dtypes(kFloatOrMask)
    .attrs({"attn_head_num:int", "attn_dim_per_head:int", "src_len:int", "tgt_len:int", "keep_prob:float",
            "softmax_use_float:bool", "bias_grad_mask:bools"})
    .require({"attn_head_num", "attn_dim_per_head", "src_len", "tgt_len", "keep_prob", "softmax_use_float",
              "bias_grad_mask"})
    .on_cube()
    .run(attention_grad);

}  // namespace
}  // namespace acl_sim
