// Gradients of the npu operators for recurrent layers, attention and dropout.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/npu/CustomAutograd.h>
#include <ATen/ops/zeros_like.h>

namespace at::native::npu {
namespace {

template <class Tuple>
variable_list as_list(const Tuple& tuple) {
  return std::apply([](const auto&... t) { return variable_list{t...}; }, tuple);
}
std::optional<Tensor> given(const Tensor& t) { return t.defined() ? std::optional<Tensor>(t) : std::nullopt; }
Tensor value_of(const std::optional<Tensor>& t) { return t.value_or(Tensor()); }

struct Lstm : Function<Lstm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& weight, const Tensor& bias,
                               const Tensor& seq_mask, const Tensor& h, const Tensor& c, bool has_biases,
                               int64_t num_layers, double dropout, bool train, bool bidirectional, bool batch_first,
                               bool flag_seq) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const variable_list out = as_list(NPU_CUSTOM_OP(npu_lstm, "npu_lstm", "")
                                          .call(input, weight, bias, seq_mask, h, c, has_biases, num_layers, dropout,
                                                train, bidirectional, batch_first, flag_seq, false));
    variable_list saved = {input, weight, bias, h, c, flag_seq ? seq_mask : Tensor()};
    saved.insert(saved.end(), out.begin(), out.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["biases"] = has_biases;
    ctx->mark_non_differentiable({out[3], out[4], out[5], out[6], out[7]});
    ctx->set_materialize_grads(false);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const auto [dx, dw, db, dh, dc] =
        NPU_CUSTOM_OP(npu_lstm_masked_backward, "_npu_lstm_masked_backward", "")
            .call(given(grads[0]), given(grads[1]), given(grads[2]), s[0], s[1], s[2], s[3], s[4], s[6], s[7], s[8],
                  s[9], s[10], s[11], s[12], s[13], given(s[5]));
    return {dx, dw, ctx->saved_data["biases"].toBool() ? db : Tensor(), {}, dh, dc, {}, {}, {}, {}, {}, {}, {}};
  }
};

struct LstmCell : Function<LstmCell> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& w_ih, const Tensor& w_hh,
                               const Tensor& h, const Tensor& c, const std::optional<Tensor>& bias) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const variable_list out =
        as_list(NPU_CUSTOM_OP(npu_lstm_cell, "npu_lstm_cell", "").call(input, w_ih, w_hh, h, c, bias));
    variable_list saved = {input, w_ih, w_hh, h, c};
    saved.insert(saved.end(), out.begin(), out.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["bias"] = bias.has_value() && bias->defined();
    ctx->mark_non_differentiable({out[3], out[4], out[5], out[6], out[7]});
    ctx->set_materialize_grads(false);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const auto [dx, dw_ih, dw_hh, db, dh, dc] =
        NPU_CUSTOM_OP(npu_lstm_cell_backward, "npu_lstm_cell_backward", "")
            .call(given(grads[0]), given(grads[1]), given(grads[2]), s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7],
                  s[8], s[9], s[10], s[11], s[12]);
    return {dx, dw_ih, dw_hh, dh, dc, ctx->saved_data["bias"].toBool() ? db : Tensor()};
  }
};

struct Gru : Function<Gru> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& hx, const Tensor& weight_input,
                               const Tensor& weight_hidden, const Tensor& bias_input, const Tensor& bias_hidden,
                               const Tensor& seq_length, bool has_biases, int64_t num_layers, double dropout,
                               bool train, bool bidirectional, bool batch_first) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const variable_list out =
        as_list(NPU_CUSTOM_OP(npu_gru, "npu_gru", "")
                    .call(input, hx, weight_input, weight_hidden, bias_input, bias_hidden, seq_length, has_biases,
                          num_layers, dropout, train, bidirectional, batch_first));
    variable_list saved = {input, hx, weight_input, weight_hidden, bias_input, bias_hidden, seq_length};
    saved.insert(saved.end(), out.begin(), out.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["biases"] = has_biases;
    ctx->mark_non_differentiable({out[2], out[3], out[4], out[5]});
    ctx->set_materialize_grads(false);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const auto [dx, dh, dw_ih, dw_hh, db_ih, db_hh] =
        NPU_CUSTOM_OP(npu_gru_backward, "npu_gru_backward", "")
            .call(given(grads[0]), given(grads[1]), s[0], s[2], s[3], s[4], s[5], s[6], s[1], s[7], s[8], s[9], s[10],
                  s[11], s[12]);
    const bool biases = ctx->saved_data["biases"].toBool();
    return {dx, dh, dw_ih, dw_hh, biases ? db_ih : Tensor(), biases ? db_hh : Tensor(), {}, {}, {}, {}, {}, {}, {}};
  }
};

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

struct Dropout : Function<Dropout> {
  static variable_list forward(AutogradContext* ctx, const Tensor& self, double p) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, mask] = NPU_CUSTOM_OP(npu_dropout, "_npu_dropout", "").call(self, p);
    ctx->save_for_backward({mask});
    ctx->saved_data["p"] = p;
    ctx->mark_non_differentiable({mask});
    return {y, mask};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Tensor dx = NPU_CUSTOM_OP(npu_dropout_backward, "npu_dropout_backward", "")
                          .call(grads[0], ctx->get_saved_variables()[0], ctx->saved_data["p"].toDouble());
    return {dx, {}};
  }
};

struct DropoutDoMask : Function<DropoutDoMask> {
  static variable_list forward(AutogradContext* ctx, const Tensor& self, const Tensor& mask, double p) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, used] = NPU_CUSTOM_OP(npu_dropout_do_mask, "npu_dropout_do_mask", "").call(self, mask, p);
    ctx->save_for_backward({used});
    ctx->saved_data["p"] = p;
    ctx->mark_non_differentiable({used});
    return {y, used};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Tensor dx = NPU_CUSTOM_OP(npu_dropout_backward, "npu_dropout_backward", "")
                          .call(grads[0], ctx->get_saved_variables()[0], ctx->saved_data["p"].toDouble());
    return {dx, {}, {}};
  }
};

struct DropoutV2 : Function<DropoutV2> {
  static variable_list forward(AutogradContext* ctx, const Tensor& self, Tensor seed, double p) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, mask, next] = NPU_CUSTOM_OP(npu_dropoutV2, "npu_dropoutV2", "").call(self, seed, p);
    ctx->save_for_backward({mask});
    ctx->saved_data["p"] = p;
    ctx->mark_non_differentiable({mask});
    return {y, mask};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Tensor dx = NPU_CUSTOM_OP(npu_dropoutV2_backward, "npu_dropoutV2_backward", "")
                          .call(grads[0], ctx->get_saved_variables()[0], ctx->saved_data["p"].toDouble());
    return {dx, {}, {}};
  }
};

struct DropoutAddSoftmax : Function<DropoutAddSoftmax> {
  static variable_list forward(AutogradContext* ctx, const Tensor& self, const Tensor& x1, const Scalar& alpha,
                               double prob, int64_t dim) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [mask, soft, y] = NPU_CUSTOM_OP(npu_dropout_with_add_softmax, "npu_dropout_with_add_softmax", "")
                                     .call(self, x1, alpha, prob, dim);
    ctx->save_for_backward({mask, soft});
    ctx->saved_data["alpha"] = alpha;
    ctx->saved_data["prob"] = prob;
    ctx->saved_data["dim"] = dim;
    ctx->mark_non_differentiable({mask, soft});
    return {mask, soft, y};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    auto& d = ctx->saved_data;
    const auto [dself, dx1] =
        NPU_CUSTOM_OP(npu_dropout_with_add_softmax_backward, "npu_dropout_with_add_softmax_backward", "")
            .call(grads[2], s[0], s[1], d["alpha"].toScalar(), d["prob"].toDouble(), d["dim"].toInt());
    return {dself, dx1, {}, {}, {}};
  }
};

template <size_t... I>
auto as_tuple(const variable_list& list, std::index_sequence<I...>) {
  return std::make_tuple(list[I]...);
}
template <size_t N>
auto as_tuple(const variable_list& list) {
  return as_tuple(list, std::make_index_sequence<N>());
}

}  // namespace

// Backwards in time is forwards over turned sequences; the device's gradient knows one direction.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_autograd(
    const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& seqMask, const Tensor& h,
    const Tensor& c, bool has_biases, int64_t num_layers, double dropout, bool train, bool bidirectional,
    bool batch_first, bool flagSeq, bool direction) {
  if (!direction) {
    return as_tuple<8>(Lstm::apply(input, weight, bias, seqMask, h, c, has_biases, num_layers, dropout, train,
                                   bidirectional, batch_first, flagSeq));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!flagSeq || seqMask.dim() > 1 || !at::GradMode::is_enabled(),
                              "npu_lstm backwards in time over sequences of several lengths has no gradient; give "
                              "seqMask as a mask of shape (time, batch, hidden)");
  const Tensor mask = flagSeq && seqMask.dim() > 1 ? seqMask.flip(0) : seqMask;
  variable_list out = Lstm::apply(input.flip(0), weight, bias, mask, h, c, has_biases, num_layers, dropout, train,
                                  bidirectional, batch_first, flagSeq);
  for (Tensor& t : out) t = t.flip(0);
  return as_tuple<8>(out);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_cell_autograd(
    const Tensor& input, const Tensor& w_ih, const Tensor& w_hh, const Tensor& h, const Tensor& c,
    const std::optional<Tensor>& bias) {
  return as_tuple<8>(LstmCell::apply(input, w_ih, w_hh, h, c, bias));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_gru_autograd(
    const Tensor& input, const Tensor& hx, const Tensor& weight_input, const Tensor& weight_hidden,
    const Tensor& bias_input, const Tensor& bias_hidden, const Tensor& seq_length, bool has_biases, int64_t num_layers,
    double dropout, bool train, bool bidirectional, bool batch_first) {
  return as_tuple<6>(Gru::apply(input, hx, weight_input, weight_hidden, bias_input, bias_hidden, seq_length, has_biases,
                                num_layers, dropout, train, bidirectional, batch_first));
}

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

std::tuple<Tensor, Tensor> npu_dropout_autograd(const Tensor& self, double p) {
  return as_tuple<2>(Dropout::apply(self, p));
}
std::tuple<Tensor, Tensor> npu_dropout_do_mask_autograd(const Tensor& self, const Tensor& mask, double p) {
  return as_tuple<2>(DropoutDoMask::apply(self, mask, p));
}
std::tuple<Tensor, Tensor, Tensor> npu_dropoutV2_autograd(const Tensor& self, Tensor& seed, double p) {
  const variable_list out = DropoutV2::apply(self, seed, p);
  return {out[0], out[1], seed};
}
std::tuple<Tensor, Tensor, Tensor> npu_dropout_with_add_softmax_autograd(const Tensor& self, const Tensor& x1,
                                                                         const Scalar& alpha, double prob,
                                                                         int64_t dim) {
  return as_tuple<3>(DropoutAddSoftmax::apply(self, x1, alpha, prob, dim));
}

}  // namespace at::native::npu
