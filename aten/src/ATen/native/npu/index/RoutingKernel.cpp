// The routing of tokens to experts and back, and npu_scatter_nd_update, made of upstream's operators, so that fake
// tensors and tracing take them.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <NPUCustomFunctions.h>

#include <algorithm>

namespace at::native::npu {
namespace {

// The columns of indices as one index for each of the first dimensions of self.
c10::List<std::optional<Tensor>> places_of(const char* name, const Tensor& self, const Tensor& indices,
                                           const Tensor& updates) {
  TORCH_CHECK(indices.dim() >= 2 && indices.size(-1) <= self.dim(), name,
              ": indices must have two dimensions or more, the last of which is at most ", self.dim(), ", but is ",
              indices.sizes());
  const int64_t depth = indices.size(-1);
  DimVector shape(indices.sizes().slice(0, indices.dim() - 1));
  for (int64_t dim = depth; dim < self.dim(); ++dim) shape.push_back(self.size(dim));
  TORCH_CHECK(updates.sizes() == IntArrayRef(shape), name, ": updates must be of shape ", IntArrayRef(shape),
              ", but are ", updates.sizes());
  TORCH_CHECK(updates.scalar_type() == self.scalar_type(), name, ": updates must be of the dtype of self, ",
              self.scalar_type(), ", but are ", updates.scalar_type());
  c10::List<std::optional<Tensor>> places;
  for (int64_t dim = 0; dim < depth; ++dim) places.push_back(indices.select(-1, dim).to(kLong));
  return places;
}

}  // namespace

Tensor npu_scatter_nd_update(const Tensor& self, const Tensor& indices, const Tensor& updates) {
  return at::index_put(self, places_of("npu_scatter_nd_update", self, indices, updates), updates);
}

Tensor& npu_scatter_nd_update_(Tensor& self, const Tensor& indices, const Tensor& updates) {
  return self.index_put_(places_of("npu_scatter_nd_update_", self, indices, updates), updates);
}

// Where each expert's rows end.
Tensor npu_moe_compute_expert_tokens(const Tensor& sorted_expert_for_source_row, int64_t num_expert) {
  const Tensor& sorted = sorted_expert_for_source_row;
  TORCH_CHECK(sorted.dim() == 1 && num_expert > 0,
              "npu_moe_compute_expert_tokens: experts of one dimension and a positive number of them expected, got ",
              sorted.sizes(), " and ", num_expert);
  const Tensor experts = at::arange(num_expert, sorted.options());
  return at::searchsorted(sorted, experts, /*out_int32=*/false, /*right=*/true).to(sorted.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> npu_moe_gating_top_k_softmax(const Tensor& x, const std::optional<Tensor>& finished,
                                                                int64_t k) {
  check_floating("npu_moe_gating_top_k_softmax", x);
  TORCH_CHECK_NOT_IMPLEMENTED(!given(finished), "npu_moe_gating_top_k_softmax: finished is not supported");
  TORCH_CHECK(x.dim() >= 2 && 0 < k && k <= x.size(-1),
              "npu_moe_gating_top_k_softmax: k is 1 to the number of experts ",
              "and x has two dimensions or three, got ", k, " and ", x.sizes());
  const auto [weights, experts] = at::topk(at::softmax(x, -1, wide_type(x)), k, -1);
  const int64_t rows = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1));
  const Tensor order = at::arange(rows * k, x.options().dtype(kInt)).view({k, rows}).t();
  return {weights.to(x.scalar_type()), experts.to(kInt), order.reshape(weights.sizes())};
}

std::tuple<Tensor, Tensor, Tensor> npu_moe_init_routing(const Tensor& x, const Tensor& row_idx,
                                                        const Tensor& expert_idx, int64_t active_num) {
  TORCH_CHECK(
      x.dim() == 2 && expert_idx.dim() == 2 && row_idx.sizes() == expert_idx.sizes() &&
          x.size(0) == expert_idx.size(0) && active_num >= 0,
      "npu_moe_init_routing: x of shape (rows, width), row_idx and expert_idx of shape (rows, k) expected, got ",
      x.sizes(), ", ", row_idx.sizes(), " and ", expert_idx.sizes());
  const int64_t rows = x.size(0), k = expert_idx.size(1);
  const auto [experts, order] = at::sort(expert_idx.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor sources = row_idx.flatten().index_select(0, order).to(kLong);
  const Tensor numbers = at::arange(rows * k, sources.options());
  const Tensor places = at::empty_like(numbers).scatter(0, sources, numbers);
  const Tensor from = sources.narrow(0, 0, std::min(active_num, rows) * k).remainder(std::max<int64_t>(rows, 1));
  return {x.index_select(0, from), places.to(kInt), experts};
}

Tensor npu_moe_finalize_routing(const Tensor& expanded_permuted_rows, const std::optional<Tensor>& skip1,
                                const std::optional<Tensor>& skip2, const std::optional<Tensor>& bias,
                                const std::optional<Tensor>& scales, const Tensor& expanded_src_to_dst_row,
                                const std::optional<Tensor>& export_for_source_row,
                                std::optional<int64_t> drop_pad_mode, std::optional<int64_t> k) {
  const char* const name = "npu_moe_finalize_routing";
  const int64_t mode = drop_pad_mode.value_or(0);
  TORCH_CHECK(0 <= mode && mode <= 3, name, ": drop_pad_mode is 0 to 3, got ", mode);
  TORCH_CHECK(given(skip1) || !given(skip2), name, ": skip2 goes with skip1");
  TORCH_CHECK(!given(bias) || given(export_for_source_row), name, ": bias goes with the experts of the rows");
  const int64_t width = expanded_permuted_rows.size(-1);
  const int64_t choices = given(scales) ? scales->size(1) : k.value_or(1);
  TORCH_CHECK(expanded_src_to_dst_row.dim() == 1 && choices > 0 && expanded_src_to_dst_row.size(0) % choices == 0, name,
              ": ", choices, " experts of each row must divide the indices, of shape ",
              expanded_src_to_dst_row.sizes());
  const int64_t rows = expanded_src_to_dst_row.size(0) / choices;
  const ScalarType wide = wide_type(expanded_permuted_rows);
  const Tensor given_rows = expanded_permuted_rows.reshape({-1, width}).to(wide);
  const Tensor flat = expanded_src_to_dst_row.to(kLong);
  // As (rows, choices): stored by columns in modes 0 and 1.
  const Tensor places = mode < 2 ? flat.view({choices, rows}).t() : flat.view({rows, choices});
  Tensor each = given_rows.index_select(0, places.clamp_min(0).flatten()).view({rows, choices, width});
  each = at::where(places.ge(0).unsqueeze(-1), each, 0);
  if (given(bias)) {
    const Tensor experts = export_for_source_row->to(kLong).flatten();
    each = each + bias->to(wide).index_select(0, experts).view({rows, choices, width});
  }
  if (given(scales)) each = each * scales->to(wide).unsqueeze(-1);
  Tensor sum = each.sum(1);
  for (const std::optional<Tensor>* skip : {&skip1, &skip2}) {
    if (given(*skip)) sum = sum + (*skip)->to(wide);
  }
  return sum.to(expanded_permuted_rows.scalar_type());
}

}  // namespace at::native::npu
