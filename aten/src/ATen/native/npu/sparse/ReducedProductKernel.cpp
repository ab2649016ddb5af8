// torch.sparse.mm(matrix, dense, reduce): what the neighbours of a node send it, summed, averaged, or the largest.

#include <ATen/native/npu/sparse/Sparse.h>
#include <ATen/native/npu/sparse/SparseKernels.h>

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <c10/core/GradMode.h>

namespace at::native::npu::sparse {
namespace {

struct Graph {
  Tensor rows, columns, values;  // of the matrix's elements
  Tensor bounds;                 // of its rows
  Tensor degrees;                // (rows, 1): how many elements a row has, but at least one
};

Graph graph_of(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.layout() == kSparseCsr, "sparse_mm_reduce: expect self to be SparseCsr, got ", self.layout());
  TORCH_CHECK(self.dense_dim() == 0, "sparse_mm_reduce: expected non-hybrid self tensor.");
  TORCH_CHECK(self.dim() == 2, "sparse_mm_reduce: expected self to be a 2-D tensor, got ", self.dim(), "-D tensor.");
  TORCH_CHECK(other.layout() == kStrided && other.dim() == 2,
              "sparse_mm_reduce: expected `other` to be 2-D strided tensor, got ", other.dim(), "-D tensor.");
  TORCH_CHECK(self.size(1) == other.size(0), "mat1 and mat2 shapes cannot be multiplied (", self.size(0), "x",
              self.size(1), " and ", other.size(0), "x", other.size(1), ")");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "sparse_mm_reduce: expected one dtype, got ",
              self.scalar_type(), " and ", other.scalar_type());
  const Tensor bounds = self.crow_indices().to(kLong), columns = self.col_indices().to(kLong);
  const int64_t m = self.size(0);
  const Tensor degrees = bounds.narrow(0, 1, m).sub(bounds.narrow(0, 0, m)).clamp_min(1).unsqueeze(1);
  return {rows_of(bounds, columns.numel()), columns, wide(self.values(), self.scalar_type()), bounds, degrees};
}

// The matrix, or the transposed one, times a dense one of `m` rows in the result.
Tensor times(const Graph& g, int64_t m, const Tensor& dense, bool transpose) {
  if (auto at_once = compressed_product(g.bounds, g.columns, g.values, m, wide(dense, dense.scalar_type()), transpose))
    return *at_once;
  return product(transpose ? g.columns : g.rows, transpose ? g.rows : g.columns, g.values, m, dense);
}

enum class Reduce { Sum, Mean, Max, Min };

Reduce reduce_of(std::string_view name) {
  if (name == "sum") return Reduce::Sum;
  if (name == "mean") return Reduce::Mean;
  if (name == "amax" || name == "max") return Reduce::Max;
  TORCH_CHECK(name == "amin" || name == "min", "reduce argument must be either sum, mean, amax or amin, got ", name);
  return Reduce::Min;
}

}  // namespace

std::tuple<Tensor, Tensor> mm_reduce(const Tensor& self, const Tensor& other, std::string_view name) {
  check_devices("_sparse_mm_reduce_impl", {self, other});
  DeviceOf guard(self);
  const Reduce reduce = reduce_of(name);
  const Graph g = graph_of(self, other);
  const int64_t m = self.size(0), k = other.size(1), nnz = g.rows.numel();
  const Tensor none = at::empty({0}, g.columns.options());
  if (nnz == 0) return {at::zeros({m, k}, other.options()), none};
  if (reduce == Reduce::Sum || reduce == Reduce::Mean) {
    const Tensor sum = times(g, m, other, false);
    return {(reduce == Reduce::Mean ? sum.div(g.degrees) : sum).to(other.scalar_type()), none};
  }
  const char* how = reduce == Reduce::Max ? "amax" : "amin";
  const Tensor messages = wide(other, other.scalar_type()).index_select(0, g.columns).mul(g.values.unsqueeze(1));
  const Tensor at = g.rows.unsqueeze(1).expand({nnz, k});
  const Tensor best =
      at::zeros({m, k}, messages.options()).scatter_reduce(0, at, messages, how, /*include_self=*/false);
  Tensor arg = none;
  if (c10::GradMode::is_enabled() && (self.requires_grad() || other.requires_grad())) {
    // The first element that is the best; nnz in rows without elements.
    const Tensor place = at::arange(nnz, g.rows.options()).unsqueeze(1).expand({nnz, k});
    const Tensor candidates = place.masked_fill(messages.ne(best.index_select(0, g.rows)), nnz);
    arg = at::full({m, k}, nnz, g.rows.options()).scatter_reduce(0, at, candidates, "amin");
  }
  return {best.to(other.scalar_type()), arg};
}

std::tuple<Tensor, Tensor> mm_reduce_backward(const Tensor& self, const Tensor& grad, const Tensor& weight,
                                              std::string_view name, const Tensor& arg, std::array<bool, 2> mask) {
  check_devices("_sparse_mm_reduce_impl_backward", {self, grad, weight});
  DeviceOf guard(self);
  const Reduce reduce = reduce_of(name);
  const Graph g = graph_of(self, weight);
  const int64_t nnz = g.rows.numel(), k = weight.size(1);
  Tensor dy = wide(grad, grad.scalar_type()), of_values, of_weight;
  const Tensor w = wide(weight, weight.scalar_type());
  if (reduce == Reduce::Sum || reduce == Reduce::Mean) {
    if (reduce == Reduce::Mean) dy = dy.div(g.degrees);
    if (mask[0]) {
      const auto at_once = sampled_product(g.bounds, g.columns, dy, w.t());
      of_values = at_once ? *at_once : dy.index_select(0, g.rows).mul(w.index_select(0, g.columns)).sum(1);
    }
    if (mask[1]) of_weight = times(g, weight.size(0), dy, true);
  } else if (nnz == 0) {
    if (mask[0]) of_values = at::zeros_like(g.values);
    if (mask[1]) of_weight = at::zeros_like(w);
  } else {
    const Tensor nothing = arg.eq(nnz), best = arg.clamp_max(nnz - 1),
                 from = g.columns.index_select(0, best.view({-1}));
    const Tensor column = from.view_as(best);
    dy = dy.masked_fill(nothing, 0);
    if (mask[0]) {
      of_values =
          at::zeros({nnz}, dy.options()).scatter_add(0, best.view({-1}), dy.mul(w.gather(0, column)).view({-1}));
    }
    if (mask[1]) {
      const Tensor values = g.values.index_select(0, best.view({-1})).view_as(dy);
      of_weight = at::zeros({weight.size(0), k}, dy.options()).scatter_add(0, column, dy.mul(values));
    }
  }
  Tensor of_self;
  if (mask[0]) {
    of_self = at::_sparse_csr_tensor_unsafe(self.crow_indices().clone(), self.col_indices().clone(),
                                            of_values.to(self.scalar_type()), self.sizes(), self.options());
  }
  return {of_self, mask[1] ? of_weight.to(weight.scalar_type()) : Tensor()};
}

}  // namespace at::native::npu::sparse
