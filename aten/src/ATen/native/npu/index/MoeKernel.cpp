// Tokens sorted by their experts and put back, made of upstream's operators, so that autograd, fake tensors and tracing
// take them.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

// Rows by their place in the sorted order; places past the end (of tokens that were dropped) give zeros.
Tensor gather_rows(const Tensor& sorted_rows, const Tensor& places) {
  const int64_t rows = sorted_rows.size(0);
  if (rows == 0) return at::zeros({places.size(0), sorted_rows.size(1)}, sorted_rows.options());
  return at::where(places.lt(rows).unsqueeze(1), sorted_rows.index_select(0, places.clamp_max(rows - 1)), 0);
}

void check_unpadded(const char* name, bool padded_mode) {
  TORCH_CHECK_NOT_IMPLEMENTED(!padded_mode, name, ": padded_mode=True is not supported");
}

struct Routing {
  Tensor places;    // flat
  int64_t choices;  // experts of a token
};
Routing routing_of(const char* name, const Tensor& permuted, const Tensor& sorted_indices,
                   const std::optional<Tensor>& probs) {
  TORCH_CHECK(permuted.dim() == 2 && sorted_indices.dim() == 1, name,
              ": permuted tokens of shape (rows, width) and sorted_indices of one dimension expected, got ",
              permuted.sizes(), " and ", sorted_indices.sizes());
  int64_t choices = 1;
  if (given(probs)) {
    TORCH_CHECK(probs->dim() == 2 && elements(*probs) == sorted_indices.size(0), name,
                ": probs of shape (tokens, experts per token) expected, one for each of the ", sorted_indices.size(0),
                " sorted_indices, got ", probs->sizes());
    choices = probs->size(1);
  }
  return {sorted_indices.to(kLong), choices};
}

}  // namespace

// The tokens in the order of their experts, each as often as it has experts; and where each of them went.
std::tuple<Tensor, Tensor> npu_moe_token_permute(const Tensor& tokens, const Tensor& indices,
                                                 std::optional<int64_t> num_out_tokens, bool padded_mode) {
  check_unpadded("npu_moe_token_permute", padded_mode);
  TORCH_CHECK(tokens.dim() == 2 && (indices.dim() == 1 || indices.dim() == 2) && indices.size(0) == tokens.size(0),
              "npu_moe_token_permute: tokens of shape (n, width) and indices of shape (n) or (n, experts per token) "
              "expected, got ",
              tokens.sizes(), " and ", indices.sizes());
  const int64_t choices = indices.dim() == 2 ? indices.size(1) : 1;
  const Tensor order = at::argsort(indices.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor places = at::argsort(order, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  Tensor from = order.div(choices, "floor");
  if (const int64_t count = num_out_tokens.value_or(0); count != 0) from = from.slice(0, 0, count);
  return {tokens.index_select(0, from), places.to(kInt)};
}

Tensor npu_moe_token_permute_grad(const Tensor& tokens, const Tensor& grad_permuted_tokens, const Tensor& indices,
                                  const Tensor& sorted_indices, bool padded_mode) {
  check_unpadded("npu_moe_token_permute_grad", padded_mode);
  const int64_t choices = indices.dim() == 2 ? indices.size(1) : 1;
  const Tensor each = gather_rows(grad_permuted_tokens.to(tokens.scalar_type()), sorted_indices.to(kLong));
  return each.view({-1, choices, tokens.size(1)}).sum(1);
}

Tensor npu_moe_token_unpermute(const Tensor& permuted_tokens, const Tensor& sorted_indices,
                               const std::optional<Tensor>& probs, bool padded_mode,
                               OptionalIntArrayRef /*restore_shape: of padded_mode*/) {
  check_unpadded("npu_moe_token_unpermute", padded_mode);
  const Routing routing = routing_of("npu_moe_token_unpermute", permuted_tokens, sorted_indices, probs);
  Tensor each = gather_rows(permuted_tokens, routing.places).view({-1, routing.choices, permuted_tokens.size(1)});
  if (given(probs)) each = each * probs->unsqueeze(-1);
  return each.sum(1).to(permuted_tokens.scalar_type());
}

std::tuple<Tensor, Tensor> npu_moe_token_unpermute_grad(const Tensor& permuted_tokens,
                                                        const Tensor& grad_unpermuted_tokens,
                                                        const Tensor& sorted_indices,
                                                        const std::optional<Tensor>& probs, bool padded_mode,
                                                        OptionalIntArrayRef /*restore_shape: of padded_mode*/) {
  check_unpadded("npu_moe_token_unpermute_grad", padded_mode);
  const Routing routing = routing_of("npu_moe_token_unpermute_grad", permuted_tokens, sorted_indices, probs);
  const int64_t rows = permuted_tokens.size(0), width = permuted_tokens.size(1);
  const Tensor grad = grad_unpermuted_tokens.unsqueeze(1);
  Tensor grad_probs = at::empty({0}, permuted_tokens.options());
  Tensor each = grad.expand({-1, routing.choices, -1});
  if (given(probs)) {
    grad_probs = (gather_rows(permuted_tokens, routing.places).view({-1, routing.choices, width}) * grad)
                     .sum(-1)
                     .to(probs->scalar_type());
    each = each * probs->unsqueeze(-1);
  }
  // One row more takes what was dropped.
  const Tensor sorted = at::zeros({rows + 1, width}, each.options());
  const Tensor grad_rows = sorted.index_add(0, routing.places.clamp_max(rows), each.reshape({-1, width}));
  return {grad_rows.narrow(0, 0, rows).to(permuted_tokens.scalar_type()), grad_probs};
}

}  // namespace at::native::npu
