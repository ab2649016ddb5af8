// npu operators that are one IR operator each: multi-head attention, Adam, calibration; values for the host to print;
// and the one that needs HCCL.

#include <ATen/native/npu/CustomNew.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <NPUCustomFunctions.h>

#include <iostream>
#include <sstream>
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

// ---- Adam: var, m and v are changed in place

static void check_state(const char* name, const Tensor& var, const Tensor& m, const Tensor& v, const Tensor& grad) {
  check_dtype(var.scalar_type(), kDtypeFloat, name);
  TORCH_CHECK(var.sizes() == m.sizes() && var.sizes() == v.sizes() && var.sizes() == grad.sizes(), name,
              ": var, m, v and grad of one shape expected, got ", var.sizes(), ", ", m.sizes(), ", ", v.sizes(),
              " and ", grad.sizes());
}

std::tuple<Tensor&, Tensor&, Tensor&> npu_apply_adam_out(const Scalar& beta1_power, const Scalar& beta2_power,
                                                         const Scalar& lr, const Scalar& beta1, const Scalar& beta2,
                                                         const Scalar& epsilon, const Tensor& grad,
                                                         std::optional<bool> use_locking,
                                                         std::optional<bool> use_nesterov, Tensor& var, Tensor& m,
                                                         Tensor& v) {
  DeviceOf guard(var);
  check_state("npu_apply_adam", var, m, v, grad);
  if (!var.is_meta() && var.numel() > 0) {
    OpCommand cmd;
    cmd.Name("ApplyAdamD").Input(var).Input(m).Input(v).Input(beta1_power, kFloat).Input(beta2_power, kFloat);
    cmd.Input(lr, kFloat).Input(beta1, kFloat).Input(beta2, kFloat).Input(epsilon, kFloat).Input(grad);
    cmd.Output(var).Output(m).Output(v).Attr("use_locking", use_locking.value_or(false));
    cmd.Attr("use_nesterov", use_nesterov.value_or(false)).Run();
  }
  return std::forward_as_tuple(var, m, v);
}

std::tuple<Tensor, Tensor, Tensor> npu_apply_adam_old(Tensor& var, Tensor& m, Tensor& v, const Scalar& beta1_power,
                                                      const Scalar& beta2_power, const Scalar& lr, const Scalar& beta1,
                                                      const Scalar& beta2, const Scalar& epsilon, const Tensor& grad,
                                                      std::optional<bool> use_locking,
                                                      std::optional<bool> use_nesterov) {
  npu_apply_adam_out(beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad, use_locking, use_nesterov, var, m, v);
  return {var, m, v};
}

std::tuple<Tensor, Tensor, Tensor> npu_apply_adam(const Scalar& /*beta1_power*/, const Scalar& /*beta2_power*/,
                                                  const Scalar& /*lr*/, const Scalar& /*beta1*/,
                                                  const Scalar& /*beta2*/, const Scalar& /*epsilon*/,
                                                  const Tensor& /*grad*/, std::optional<bool> /*use_locking*/,
                                                  std::optional<bool> /*use_nesterov*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_apply_adam changes its state in place: pass it as out=(var, m, v)");
}

std::tuple<Tensor&, Tensor&, Tensor&> npu_bert_apply_adam_out(
    const Scalar& lr, const Scalar& beta1, const Scalar& beta2, const Scalar& epsilon, const Tensor& grad,
    const Scalar& max_grad_norm, const Scalar& global_grad_norm, const Scalar& weight_decay,
    const std::optional<Scalar>& step_size, int64_t adam_mode, Tensor& var, Tensor& m, Tensor& v) {
  DeviceOf guard(var);
  check_state("npu_bert_apply_adam", var, m, v, grad);
  TORCH_CHECK(adam_mode == 0 || adam_mode == 1, "npu_bert_apply_adam: adam_mode is 0 (adam) or 1 (mbert_adam), got ",
              adam_mode);
  TORCH_CHECK(adam_mode == 0 || step_size.has_value(), "npu_bert_apply_adam: adam_mode=1 needs step_size");
  if (!var.is_meta() && var.numel() > 0) {
    OpCommand cmd;
    cmd.Name("ApplyAdamV2").Input(var).Input(m).Input(v).Input(lr, kFloat).Input(beta1, kFloat).Input(beta2, kFloat);
    cmd.Input(epsilon, kFloat).Input(grad).Input(max_grad_norm, kFloat).Input(global_grad_norm, kFloat);
    cmd.Input(weight_decay, kFloat);
    if (step_size.has_value()) cmd.Input(*step_size, kFloat);
    cmd.Output(var).Output(m).Output(v).Attr("adam_mode", adam_mode == 0 ? "adam" : "mbert_adam").Run();
  }
  return std::forward_as_tuple(var, m, v);
}

std::tuple<Tensor, Tensor, Tensor> npu_bert_apply_adam_old(Tensor& var, Tensor& m, Tensor& v, const Scalar& lr,
                                                           const Scalar& beta1, const Scalar& beta2,
                                                           const Scalar& epsilon, const Tensor& grad,
                                                           const Scalar& max_grad_norm, const Scalar& global_grad_norm,
                                                           const Scalar& weight_decay,
                                                           const std::optional<Scalar>& step_size, int64_t adam_mode) {
  npu_bert_apply_adam_out(lr, beta1, beta2, epsilon, grad, max_grad_norm, global_grad_norm, weight_decay, step_size,
                          adam_mode, var, m, v);
  return {var, m, v};
}

std::tuple<Tensor, Tensor, Tensor> npu_bert_apply_adam(
    const Scalar& /*lr*/, const Scalar& /*beta1*/, const Scalar& /*beta2*/, const Scalar& /*epsilon*/,
    const Tensor& /*grad*/, const Scalar& /*max_grad_norm*/, const Scalar& /*global_grad_norm*/,
    const Scalar& /*weight_decay*/, const std::optional<Scalar>& /*step_size*/, int64_t /*adam_mode*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_bert_apply_adam changes its state in place: pass it as out=(var, m, v)");
}

std::tuple<Tensor, Tensor> npu_ifmr(const Tensor& data, const Tensor& data_min, const Tensor& data_max,
                                    const Tensor& cumsum, double min_percentile, double max_percentile,
                                    double search_start, double search_end, double search_step, bool with_offset) {
  DeviceOf guard(data);
  check_dtype(data.scalar_type(), kDtypeFloat, "npu_ifmr");
  TORCH_CHECK(elements(data) > 0 && elements(data_min) == 1 && elements(data_max) == 1 && cumsum.dim() == 1,
              "npu_ifmr: data, its minimum and maximum of one element each, and a cumulated histogram expected, got ",
              data.sizes(), ", ", data_min.sizes(), ", ", data_max.sizes(), " and ", cumsum.sizes());
  TORCH_CHECK(search_step > 0 && search_end > search_start, "npu_ifmr: there is nothing to search from ", search_start,
              " to ", search_end, " in steps of ", search_step);
  const Tensor scale = new_like(data_min), offset = new_like(data_min);
  if (scale.is_meta()) return {scale, offset};
  OpCommand cmd;
  cmd.Name("IFMR").Input(data).Input(data_min).Input(data_max).Input(cumsum).Output(scale).Output(offset);
  cmd.Attr("min_percentile", min_percentile).Attr("max_percentile", max_percentile);
  cmd.Attr("search_range", ArrayRef<double>({search_start, search_end})).Attr("search_step", search_step);
  cmd.Attr("with_offset", with_offset).Run();
  return {scale, offset};
}

// ---- Values for the host

// On a card a channel of the driver takes them to a thread that prints; here the host prints, and waits for them.
void npu_enque_tensor(TensorList tensors, std::string_view format_string) {
  std::ostringstream text;
  size_t next = 0;
  while (next < tensors.size()) {
    const size_t place = format_string.find("{}");
    if (place == std::string_view::npos) break;
    text << format_string.substr(0, place) << tensors[next++].cpu();
    format_string.remove_prefix(place + 2);
  }
  text << format_string << '\n';
  for (; next < tensors.size(); ++next) text << tensors[next].cpu() << '\n';
  std::cout << text.str() << std::flush;
}

Tensor npu_hcom_allreduce(const Tensor& /*self*/, std::string_view /*reduction*/, std::string_view group,
                          int64_t /*fusion*/, int64_t /*fusion_id*/, double /*alpha*/, double /*beta*/, Tensor& /*out*/,
                          std::optional<int64_t> /*hccl_comm*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_hcom_allreduce in group '", group,
                              "' needs HCCL, which this build does not have yet; torch.distributed reduces tensors "
                              "through its other back ends");
}

}  // namespace at::native::npu
