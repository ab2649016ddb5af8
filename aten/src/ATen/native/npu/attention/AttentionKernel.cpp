// Scaled dot product attention. Upstream asks the device which implementation to use: attention in blocks, which keeps
// no matrix of scores, where it applies; else the composite of matrix products and softmax.

#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/attention/Transformed.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <NPUNativeFunctions.h>

#include <cmath>

namespace at::native::npu {
namespace {

// Where attention in blocks applies: what upstream requires of the CPU's, but that heads may share keys. Tracing with
// changing shapes asks, too, so sizes may be symbols.
bool in_blocks(const sdp::sdp_params& p) {
  constexpr std::array<ScalarType, 4> kTypes{kDouble, kFloat, kHalf, kBFloat16};
  // fp64 goes to upstream's kernel.
  if (p.enable_gqa && p.query.scalar_type() == kDouble) return false;
  return p.query.dim() == 4 && TORCH_GUARD_OR_TRUE(p.query.sym_numel().sym_gt(0)) &&
         TORCH_GUARD_OR_TRUE(p.key.sym_numel().sym_gt(0)) &&
         (p.enable_gqa || p.query.sym_size(1) == p.key.sym_size(1)) && sdp::check_runtime_disabled_flash(p, false) &&
         sdp::check_nested_tensor(p, false) && sdp::check_for_dropout(p, false) && sdp::check_tensor_shapes(p, false) &&
         sdp::check_batch_size_and_num_heads_dense<true>(p, false) && sdp::check_attn_mask_shape(p, false) &&
         sdp::check_nonzero_sequence_lengths_dense(p, false) && p.query.sym_size(3) == p.key.sym_size(3) &&
         p.query.sym_size(3) == p.value.sym_size(3) && sdp::check_tensor_dtype(p, kTypes, false);
}

double scale_of(const Tensor& query, std::optional<double> scale) {
  return scale.has_value() ? *scale : 1 / std::sqrt(static_cast<double>(query.size(-1)));
}

// Results keep the order (batch, position, head, width) that projections read next; the operator gives it.
Tensor results_like(const Tensor& t) {
  return empty_npu({t.size(0), t.size(2), t.size(1), t.size(3)}, t.scalar_type(), t.device());
}

// True if the heads of a position lie together, as projections leave them: they are read as they lie.
bool by_position(const Tensor& t) { return t.size(1) == 1 || t.stride(1) < t.stride(2); }

// Adds query, key and value in the layout whose attribute it returns.
const char* input_heads(OpCommand& cmd, const Tensor& query, const Tensor& key, const Tensor& value) {
  const bool positions = by_position(query) && by_position(key) && by_position(value);
  for (const Tensor& t : {query, key, value}) cmd.Input(positions ? t.transpose(1, 2) : t);
  return positions ? "BSND" : "BNSD";
}

}  // namespace

int64_t fused_sdp_choice(const Tensor& query, const Tensor& key, const Tensor& value,
                         const std::optional<Tensor>& attn_mask, double dropout_p, bool is_causal,
                         std::optional<double> /*scale*/, bool enable_gqa) {
  const sdp::sdp_params params{query, key, value, attn_mask, dropout_p, is_causal, enable_gqa};
  const bool fused = !lacks("DotProductAttention") && in_blocks(params) && !transformed(query) && !transformed(key) &&
                     !transformed(value);
  return static_cast<int64_t>(fused ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> fused_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& attn_bias,
    double dropout_p, bool is_causal, bool /*return_debug_mask*/, std::optional<double> scale) {
  DeviceOf guard(query);
  TORCH_CHECK(
      query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
      "fused attention expects query, key and value of four dimensions (batch, head, position, width), but found ",
      query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  TORCH_CHECK(dropout_p == 0.0, "fused attention has no dropout, but dropout_p is ", dropout_p);
  if (lacks("DotProductAttention")) {
    const auto [output, logsumexp] =
        composed::attention(query, key, value, attn_bias, is_causal, scale_of(query, scale));
    return {output,   logsumexp, Tensor(), Tensor(), c10::SymInt(query.size(2)), c10::SymInt(key.size(2)),
            Tensor(), Tensor(),  Tensor()};
  }
  const Tensor output = results_like(query);
  const ScalarType wide = query.scalar_type() == kDouble ? kDouble : kFloat;
  // Stored by position, then head, as the operator makes it.
  const Tensor logsumexp = empty_npu({query.size(0), query.size(2), query.size(1)}, wide, query.device());
  OpCommand cmd;
  cmd.Name("DotProductAttention");
  const char* layout = input_heads(cmd, query, key, value);
  cmd.InputOptional(attn_bias);
  cmd.Input(Scalar(scale_of(query, scale)), kDouble).Output(output).Output(logsumexp);
  cmd.Attr("input_layout", layout).Attr("is_causal", is_causal).Run();
  return {output.transpose(1, 2),
          logsumexp.transpose(1, 2),
          Tensor(),
          Tensor(),
          c10::SymInt(query.size(2)),
          c10::SymInt(key.size(2)),
          Tensor(),
          Tensor(),
          Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> fused_attention_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_bias,
    std::array<bool, 4> grad_input_mask, const Tensor& out, const Tensor& logsumexp, const Tensor& /*cum_seq_q*/,
    const Tensor& /*cum_seq_k*/, int64_t /*max_q*/, int64_t /*max_k*/, double dropout_p, bool is_causal,
    const Tensor& /*philox_seed*/, const Tensor& /*philox_offset*/, std::optional<double> scale) {
  if (!grad_out.defined()) return {};
  DeviceOf guard(query);
  TORCH_CHECK(dropout_p == 0.0, "fused attention has no dropout, but dropout_p is ", dropout_p);
  TORCH_CHECK(!grad_input_mask[3], "fused attention has no gradient of attn_bias");
  if (lacks("DotProductAttentionGrad")) {
    const auto [by_query, by_key, by_value] = composed::attention_backward(
        grad_out, query, key, value, attn_bias, out, logsumexp, is_causal, scale_of(query, scale));
    return {by_query, by_key, by_value, Tensor()};
  }
  const Tensor grad_query = results_like(query), grad_key = results_like(key), grad_value = results_like(value);
  OpCommand cmd;
  cmd.Name("DotProductAttentionGrad").Input(grad_out.transpose(1, 2));
  const char* layout = input_heads(cmd, query, key, value);
  cmd.Input(out.transpose(1, 2)).Input(logsumexp.transpose(1, 2)).Input(attn_bias);
  cmd.Input(Scalar(scale_of(query, scale)), kDouble).Output(grad_query).Output(grad_key).Output(grad_value);
  cmd.Attr("input_layout", layout).Attr("is_causal", is_causal).Run();
  return {grad_query.transpose(1, 2), grad_key.transpose(1, 2), grad_value.transpose(1, 2), Tensor()};
}

}  // namespace at::native::npu

namespace at::native {

// The composite attention asks this stub where the device type has one, before the operator above.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &npu::fused_sdp_choice)

}  // namespace at::native
