// Indices of sparse tensors, which are dense tensors: whether they are right, and from one layout to another where the
// device has no IR operator for that.

#include <ATen/native/npu/sparse/Sparse.h>
#include <ATen/native/npu/sparse/SparseKernels.h>

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu::sparse {

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

namespace at::native::npu {

std::vector<Tensor> composed_coo_to_csr(const AtenArguments& a) {
  const ScalarType type = a["out_int32"].toBool() ? kInt : kLong;
  return {sparse::bounds_of(a.tensor("self"), a["size"].toInt()).to(type)};
}

std::vector<Tensor> composed_csr_to_coo(const AtenArguments& a) {
  const Tensor &bounds = a.tensor("crow_indices"), &plain = a.tensor("col_indices");
  const bool transpose = a["transpose"].toBool();
  const ScalarType type = a["out_int32"].toBool() ? kInt : kLong;
  const int64_t nnz = plain.size(-1), batches = plain.dim() - 1;
  const Tensor rows = sparse::rows_of(bounds, nnz).to(type).reshape({-1}), columns = plain.to(type).reshape({-1});
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
  return {at::stack(parts)};
}

}  // namespace at::native::npu
