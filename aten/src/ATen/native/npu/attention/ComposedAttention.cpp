// Attention by products of matrices and a softmax, which keep the matrix of scores.

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/inference/Composed.h>

#include <limits>

namespace at::native::npu::composed {
namespace {

Tensor scores_of(const Tensor& query, const Tensor& key, const std::optional<Tensor>& bias, bool is_causal,
                 double scale) {
  Tensor scores = at::matmul(query, key.transpose(-2, -1)).to(wide_type(query.scalar_type())) * scale;
  const auto masked = [&](const Tensor& seen) {
    return at::where(seen, scores, at::full({}, -std::numeric_limits<double>::infinity(), scores.options()));
  };
  if (bias.has_value() && bias->defined()) scores = bias->scalar_type() == kBool ? masked(*bias) : scores + *bias;
  if (is_causal) scores = masked(at::ones({query.size(-2), key.size(-2)}, query.options().dtype(kBool)).tril());
  return scores;
}

// Stored by position, then head.
Tensor by_position(const Tensor& t) { return t.transpose(1, 2).contiguous().transpose(1, 2); }

}  // namespace

std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const std::optional<Tensor>& attn_bias, bool is_causal, double scale) {
  const Tensor scores = scores_of(query, key, attn_bias, is_causal, scale);
  const Tensor shares = at::softmax(scores, -1).to(value.scalar_type());
  return {by_position(at::matmul(shares, value)), by_position(at::logsumexp(scores, -1))};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& grad_out, const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& attn_bias, const Tensor& out,
                                                      const Tensor& logsumexp, bool is_causal, double scale) {
  const ScalarType type = query.scalar_type(), compute = wide_type(type);
  const Tensor scores = scores_of(query, key, attn_bias, is_causal, scale);
  const Tensor shares = at::exp(scores - logsumexp.unsqueeze(-1));
  const Tensor mean = (grad_out.to(compute) * out.to(compute)).sum(-1, /*keepdim=*/true);
  const Tensor by_scores =
      (shares * (at::matmul(grad_out, value.transpose(-2, -1)).to(compute) - mean) * scale).to(type);
  return {by_position(at::matmul(by_scores, key)), by_position(at::matmul(by_scores.transpose(-2, -1), query)),
          by_position(at::matmul(shares.to(type).transpose(-2, -1), grad_out))};
}

}  // namespace at::native::npu::composed
