// The gradient of npu_multi_head_attention.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>

namespace at::native::npu {
namespace {

struct Attention : Function<Attention> {
  static variable_list forward(AutogradContext* ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                               const Tensor& wq, const Tensor& wk, const Tensor& wv, const Tensor& attn_mask,
                               const Tensor& wo, const std::optional<Tensor>& bq, const std::optional<Tensor>& bk,
                               const std::optional<Tensor>& bv, const std::optional<Tensor>& bo,
                               const std::optional<Tensor>& dropout_mask, int64_t heads, int64_t width, int64_t source,
                               int64_t target, double drop, bool use_float) {
    const at::AutoDispatchBelowADInplaceOrView below;
    TORCH_CHECK_NOT_IMPLEMENTED(!attn_mask.requires_grad(), "npu_multi_head_attention has no gradient for attn_mask");
    const variable_list out = as_list(NPU_CUSTOM_OP(npu_multi_head_attention, "npu_multi_head_attention", "")
                                          .call(query, key, value, wq, wk, wv, attn_mask, wo, bq, bk, bv, bo,
                                                dropout_mask, heads, width, source, target, drop, use_float));
    variable_list saved = {query, key, value, wq, wk, wv, wo, value_of(bq), value_of(bk), value_of(bv), value_of(bo)};
    saved.insert(saved.end(), out.begin() + 1, out.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["width"] = width;
    ctx->saved_data["source"] = source;
    ctx->saved_data["target"] = target;
    ctx->saved_data["drop"] = drop;
    ctx->saved_data["use_float"] = use_float;
    ctx->mark_non_differentiable({out[1], out[2], out[3], out[4], out[5], out[6], out[7]});
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    auto& d = ctx->saved_data;
    const auto g = as_list(NPU_CUSTOM_OP(npu_multi_head_attention_backward, "npu_multi_head_attention_backward", "")
                               .call(s[0], s[1], s[2], s[3], s[4], s[5], s[6], given(s[7]), given(s[8]), given(s[9]),
                                     given(s[10]), s[12], s[13], s[14], s[15], s[16], s[17], grads[0], s[11],
                                     d["heads"].toInt(), d["width"].toInt(), d["source"].toInt(), d["target"].toInt(),
                                     d["drop"].toDouble(), d["use_float"].toBool()));
    const auto bias = [&](size_t input, size_t output) { return s[input].defined() ? g[output] : Tensor(); };
    return {g[4],       g[5],         g[6], g[0], g[1], g[2], {}, g[3], bias(7, 7), bias(8, 8),
            bias(9, 9), bias(10, 10), {},   {},   {},   {},   {}, {},   {}};
  }
};

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_multi_head_attention_autograd(
    const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& query_weight, const Tensor& key_weight,
    const Tensor& value_weight, const Tensor& attn_mask, const Tensor& out_proj_weight,
    const std::optional<Tensor>& query_bias, const std::optional<Tensor>& key_bias,
    const std::optional<Tensor>& value_bias, const std::optional<Tensor>& out_proj_bias,
    const std::optional<Tensor>& dropout_mask, int64_t attn_head_num, int64_t attn_dim_per_head, int64_t src_len,
    int64_t tgt_len, double dropout_prob, bool softmax_use_float) {
  return as_tuple<8>(Attention::apply(query, key, value, query_weight, key_weight, value_weight, attn_mask,
                                      out_proj_weight, query_bias, key_bias, value_bias, out_proj_bias, dropout_mask,
                                      attn_head_num, attn_dim_per_head, src_len, tgt_len, dropout_prob,
                                      softmax_use_float));
}

}  // namespace at::native::npu
