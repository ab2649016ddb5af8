// npu_multi_head_attention: attention with its projections as one IR operator, and its gradient as another.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <NPUCustomFunctions.h>

#include <tuple>

namespace at::native::npu {
namespace {

struct Heads {
  int64_t count, width, source, target;
  double drop;

  void check(const char* name, const Tensor& query, const Tensor& key, const Tensor& value) const {
    TORCH_CHECK(query.dim() == 2 && key.dim() == 2 && key.sizes() == value.sizes() && target > 0 && source > 0 &&
                    query.size(0) % target == 0 && key.size(0) == query.size(0) / target * source,
                name, ": query of shape (batch * ", target, ", features) and key and value of shape (batch * ", source,
                ", features) expected, got ", query.sizes(), ", ", key.sizes(), " and ", value.sizes());
    check_dtype(query.scalar_type(), kDtypeFloat, name);
    TORCH_CHECK(drop >= 0 && drop <= 1, name, ": dropout_prob has to be between 0 and 1, but got ", drop);
  }
  void attach(OpCommand& cmd, bool softmax_use_float) const {
    cmd.Attr("attn_head_num", count).Attr("attn_dim_per_head", width).Attr("src_len", source).Attr("tgt_len", target);
    cmd.Attr("keep_prob", 1. - drop).Attr("softmax_use_float", softmax_use_float);
  }
};

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_multi_head_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_weight, const Tensor& key_weight,
    const Tensor& value_weight, const Tensor& attn_mask, const Tensor& out_proj_weight,
    const std::optional<Tensor>& query_bias, const std::optional<Tensor>& key_bias,
    const std::optional<Tensor>& value_bias, const std::optional<Tensor>& out_proj_bias,
    const std::optional<Tensor>& dropout_mask, int64_t attn_head_num, int64_t attn_dim_per_head, int64_t src_len,
    int64_t tgt_len, double dropout_prob, bool softmax_use_float) {
  DeviceOf guard(query);
  const Heads h{attn_head_num, attn_dim_per_head, src_len, tgt_len, dropout_prob};
  h.check("npu_multi_head_attention", query, key, value);
  const int64_t width = h.count * h.width, batch = query.size(0) / tgt_len;
  for (const Tensor* w : {&query_weight, &key_weight, &value_weight}) {
    TORCH_CHECK(w->dim() == 2 && w->size(0) == width, "npu_multi_head_attention: weights of shape (", width,
                ", features) expected for ", h.count, " heads of ", h.width, ", got ", w->sizes());
  }
  const DimVector scores = {batch, h.count, tgt_len, src_len};
  const int64_t bytes = (c10::multiply_integers(scores) + 127) / 128 * 16;
  const Tensor y = new_like(query, {query.size(0), out_proj_weight.size(0)});
  const Tensor q = new_like(query, {batch, h.count, tgt_len, h.width}), mask = new_like(query, {bytes}, kByte);
  const Tensor k = new_like(query, {batch, h.count, src_len, h.width}), v = new_like(k);
  const Tensor soft = new_like(query, scores, softmax_use_float ? kFloat : query.scalar_type());
  const Tensor dropped = new_like(query, scores), context = new_like(query, {query.size(0), width});
  if (!query.is_meta() && query.numel() > 0) {
    // Without dropout the mask has no say, whatever was given.
    Tensor bits = dropout_mask.value_or(Tensor());
    if (dropout_prob > 0 && bits.defined()) {
      TORCH_CHECK(bits.scalar_type() == kByte && bits.numel() == bytes,
                  "npu_multi_head_attention: dropout_mask is a "
                  "uint8 tensor of ",
                  bytes, " elements (see npu_dropout_gen_mask), got ", bits.scalar_type(), " of shape ", bits.sizes());
    } else if (dropout_prob > 0) {
      bits = npu_dropout_gen_mask(scores, dropout_prob, std::nullopt, std::nullopt, query.device(), std::nullopt);
    } else {
      bits = new_like(query, {bytes}, kByte).fill_(255);
    }
    OpCommand cmd;
    cmd.Name("MultiHeadAttention").Input(query).Input(key).Input(value).Input(query_weight).Input(key_weight);
    cmd.Input(value_weight).Input(attn_mask.expand(scores)).Input(out_proj_weight);
    cmd.InputOptional(query_bias).InputOptional(key_bias).InputOptional(value_bias).InputOptional(out_proj_bias);
    cmd.Input(bits).Output(y).Output(mask).Output(q).Output(k).Output(v).Output(soft).Output(dropped).Output(context);
    h.attach(cmd, softmax_use_float);
    cmd.Run();
  }
  return {y, mask, q, k, v, soft, dropped, context};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>
npu_multi_head_attention_backward(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                                  const Tensor& out_proj_weight, const std::optional<Tensor>& /*query_bias*/,
                                  const std::optional<Tensor>& /*key_bias*/,
                                  const std::optional<Tensor>& /*value_bias*/,
                                  const std::optional<Tensor>& /*out_proj_bias*/, const Tensor& query_res,
                                  const Tensor& key_res, const Tensor& value_res, const Tensor& attn_scores,
                                  const Tensor& attn_res, const Tensor& context, const Tensor& y_grad,
                                  const Tensor& dropout_mask, int64_t attn_head_num, int64_t attn_dim_per_head,
                                  int64_t src_len, int64_t tgt_len, double dropout_prob, bool softmax_use_float) {
  DeviceOf guard(query);
  const Heads h{attn_head_num, attn_dim_per_head, src_len, tgt_len, dropout_prob};
  h.check("npu_multi_head_attention_backward", query, key, value);
  const auto row = [&](const Tensor& weight) { return new_like(query, {weight.size(0)}); };
  const Tensor dwq = new_like(query_weight), dwk = new_like(key_weight), dwv = new_like(value_weight);
  const Tensor dwo = new_like(out_proj_weight), dq = new_like(query), dk = new_like(key), dv = new_like(value);
  const Tensor dbq = row(query_weight), dbk = row(key_weight), dbv = row(value_weight), dbo = row(out_proj_weight);
  if (!query.is_meta() && query.numel() == 0) {
    for (const Tensor* t : {&dwq, &dwk, &dwv, &dwo, &dbq, &dbk, &dbv, &dbo}) t->zero_();
  } else if (!query.is_meta()) {
    OpCommand cmd;
    cmd.Name("MultiHeadAttentionGrad").Input(query).Input(key).Input(value).Input(query_weight).Input(key_weight);
    cmd.Input(value_weight).Input(out_proj_weight).Input(query_res).Input(key_res).Input(value_res);
    cmd.Input(attn_scores).Input(attn_res).Input(context).Input(y_grad).Input(dropout_mask);
    cmd.Output(dwq).Output(dwk).Output(dwv).Output(dwo).Output(dq).Output(dk).Output(dv);
    cmd.Output(dbq).Output(dbk).Output(dbv).Output(dbo).Attr("bias_grad_mask",
                                                             ArrayRef<bool>({true, true, true, true}));
    h.attach(cmd, softmax_use_float);
    cmd.Run();
  }
  return {dwq, dwk, dwv, dwo, dq, dk, dv, dbq, dbk, dbv, dbo};
}

}  // namespace at::native::npu
