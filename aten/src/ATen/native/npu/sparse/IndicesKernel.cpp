// Indices of sparse tensors, which are dense tensors: from one layout to another, and whether they are right.

#include <ATen/native/npu/sparse/Sparse.h>
#include <ATen/native/npu/sparse/SparseKernels.h>

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>

namespace at::native::npu::sparse {

Tensor coo_to_csr(const Tensor& self, int64_t size, bool out_int32) {
  DeviceOf guard(self);
  TORCH_CHECK(self.dim() <= 1, "Input is supposed to be a vector, but got ", self.dim(), " dimensional tensor.");
  return bounds_of(self, size).to(out_int32 ? kInt : kLong);
}

Tensor& coo_to_csr_out(const Tensor& self, int64_t size, bool out_int32, Tensor& result) {
  const Tensor bounds = coo_to_csr(self, size, out_int32);
  if (!result.sizes().equals(bounds.sizes())) result.resize_(bounds.sizes());
  return result.copy_(bounds);
}

Tensor csr_to_coo(const Tensor& bounds, const Tensor& plain, bool out_int32, bool transpose) {
  check_devices("_convert_indices_from_csr_to_coo", {bounds, plain});
  DeviceOf guard(bounds);
  const ScalarType type = out_int32 ? kInt : kLong;
  const int64_t nnz = plain.size(-1), batches = plain.dim() - 1;
  const Tensor rows = rows_of(bounds, nnz).to(type).reshape({-1}), columns = plain.to(type).reshape({-1});
  std::vector<Tensor> parts;
  // Which batch an element belongs to: the last batch dimension runs fastest.
  int64_t inner = nnz;
  for (int64_t d = batches - 1; d >= 0; inner *= plain.size(d--)) {
    const int64_t size = plain.size(d), outer = inner * size == 0 ? 0 : rows.numel() / (inner * size);
    const Tensor batch = at::arange(size, rows.options()).view({1, size, 1}).expand({outer, size, inner}).reshape({-1});
    parts.insert(parts.begin(), batch);
  }
  parts.push_back(transpose ? columns : rows);
  parts.push_back(transpose ? rows : columns);
  return at::stack(parts);
}

Tensor& csr_to_coo_out(const Tensor& bounds, const Tensor& plain, bool out_int32, bool transpose, Tensor& result) {
  const Tensor indices = csr_to_coo(bounds, plain, out_int32, transpose);
  if (!result.sizes().equals(indices.sizes())) result.resize_(indices.sizes());
  return result.copy_(indices);
}

// The checks that need values, all answered by one copy to the host.
void validate(bool is_crow, const Tensor& compressed, const Tensor& plain, int64_t cdim, int64_t dim, int64_t nnz) {
  check_devices("_validate_compressed_sparse_indices", {compressed, plain});
  DeviceOf guard(compressed);
  const std::string c = is_crow ? "crow_indices" : "ccol_indices", p = is_crow ? "col_indices" : "row_indices";
  const std::string plain_dim = is_crow ? "ncols" : "nrows";
  if (compressed.numel() == 0) return;
  const Tensor length = compressed.narrow(-1, 1, cdim).sub(compressed.narrow(-1, 0, cdim));
  std::vector<Tensor> right{compressed.select(-1, 0).eq(0).all(), compressed.select(-1, -1).eq(nnz).all(),
                            length.ge(0).logical_and(length.le(dim)).all()};
  std::vector<std::string> wanted{"`" + c + "[..., 0] == 0`", "`" + c + "[..., -1] == nnz`",
            "`0 <= " + c + "[..., 1:] - " + c + "[..., :-1] <= " + plain_dim + "`"};
  if (plain.numel() > 0) {
    right.push_back(plain.ge(0).logical_and(plain.lt(dim)).all());
    wanted.push_back("`0 <= " + p + " < " + plain_dim + "`");
    if (nnz > 1) {
      const Tensor rows = rows_of(compressed, nnz);
      const Tensor same = rows.narrow(-1, 1, nnz - 1).eq(rows.narrow(-1, 0, nnz - 1));
      const Tensor rises = plain.narrow(-1, 1, nnz - 1).gt(plain.narrow(-1, 0, nnz - 1));
      right.push_back(rises.logical_or(same.logical_not()).all());
      wanted.push_back("`" + p + "[..., " + c + "[..., i - 1]:" + c + "[..., i]] for all i = 1, ..., " +
                       (is_crow ? "nrows" : "ncols") + " are sorted and distinct along the last dimension values`");
    }
  }
  const Tensor answers = at::stack(right).cpu();
  for (size_t i = 0; i < wanted.size(); ++i) {
    TORCH_CHECK(answers.data_ptr<bool>()[i], wanted[i], " is not satisfied.");
  }
}

}  // namespace at::native::npu::sparse
