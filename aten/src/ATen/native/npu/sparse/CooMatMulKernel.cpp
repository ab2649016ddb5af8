// Products of COO matrices.

#include <ATen/native/npu/sparse/Sparse.h>
#include <ATen/native/npu/sparse/SparseKernels.h>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>

namespace at::native::npu::sparse {
namespace {

void check_matrices(const char* name, const Tensor& sparse, const Tensor& dense) {
  TORCH_CHECK(sparse.layout() == kSparse && dense.layout() == kStrided, name, ": expected a sparse matrix and a dense ",
              "one, got layouts ", sparse.layout(), " and ", dense.layout());
  TORCH_CHECK(sparse.sparse_dim() == 2, name, ": matrices expected, got ", sparse.sparse_dim(), "D tensor");
  TORCH_CHECK(sparse.dense_dim() == 0, name, ": scalar values expected, got ", sparse.dense_dim(), "D values");
  TORCH_CHECK(dense.dim() == 2, name, ": matrices expected, got ", dense.dim(), "D tensor");
  TORCH_CHECK(dense.size(0) == sparse.size(1), name, ": Expected dim 0 of the dense matrix to have size ",
              sparse.size(1), ", got ", dense.size(0));
  TORCH_CHECK(dense.scalar_type() == sparse.scalar_type(), "expected scalar type ", sparse.scalar_type(), " but found ",
              dense.scalar_type());
}

Tensor times(const Tensor& sparse, const Tensor& dense) {
  const Tensor indices = sparse._indices();
  return product(indices.select(0, 0), indices.select(0, 1), sparse._values(), sparse.size(0), dense);
}

}  // namespace

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha,
                  Tensor& result) {
  check_devices("addmm", {mat1, self, mat2, result});
  DeviceOf guard(mat1);
  TORCH_CHECK(result.layout() == kStrided,
              "addmm_sparse_dense: expected strided result tensor, got tensor with layout ", result.layout());
  TORCH_CHECK(self.layout() == kStrided, "addmm_sparse_dense: expected 't' to have strided layout, got tensor with ",
              "layout ", self.layout());
  check_matrices("addmm", mat1, mat2);
  TORCH_CHECK(self.scalar_type() == mat1.scalar_type(), "expected scalar type ", mat1.scalar_type(), " but found ",
              self.scalar_type());
  const std::array<int64_t, 2> sizes{mat1.size(0), mat2.size(1)};
  const c10::MaybeOwned<Tensor> added = expand_size(self, sizes, "addmm_out");
  Tensor sum = times(mat1, mat2);
  if (!alpha.equal(1)) sum = sum.mul(alpha);
  if (!beta.equal(0)) sum = sum.add(added->to(sum.scalar_type()), beta);
  if (!result.sizes().equals(sizes)) result.resize_(sizes);
  return result.copy_(sum);
}

Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  Tensor result = at::empty({mat1.size(0), mat2.size(1)}, self.options());
  return addmm_out(self, mat1, mat2, beta, alpha, result);
}

Tensor& addmm_(Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  TORCH_CHECK(self.dim() == 2 && self.size(0) == mat1.size(0) && self.size(1) == mat2.size(1),
              "addmm: Argument #1 (t): Expected sizes ", mat1.size(0), " and ", mat2.size(1), ", got ", self.sizes());
  return addmm_out(self, mat1, mat2, beta, alpha, self);
}

Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& result) {
  check_devices("bmm", {self, mat2, result});
  DeviceOf guard(self);
  TORCH_CHECK(!mat2.is_sparse(), "bmm_sparse: Tensor 'mat2' must be dense");
  TORCH_CHECK(self.dense_dim() == 0, "bmm_sparse: Tensor 'self' must have 0 dense dims, but has ", self.dense_dim());
  TORCH_CHECK(self.sparse_dim() == 3, "bmm_sparse: Tensor 'self' must have 3 sparse dims, but has ", self.sparse_dim());
  TORCH_CHECK(mat2.dim() == 3, "bmm_sparse: Tensor 'mat2' must have 3 dims, but has ", mat2.dim());
  TORCH_CHECK(self.size(0) == mat2.size(0), "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == mat2.size(1), "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
  const int64_t batches = self.size(0), n = self.size(1), m = self.size(2), k = mat2.size(2);
  const Tensor indices = self._indices(), batch = indices.select(0, 0);
  // The batches one below the other.
  const Tensor rows = batch.mul(n).add(indices.select(0, 1)), columns = batch.mul(m).add(indices.select(0, 2));
  result.resize_({batches, n, k});
  return result.copy_(
      product(rows, columns, self._values(), batches * n, mat2.reshape({batches * m, k})).view({batches, n, k}));
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  Tensor result = at::empty({0}, mat2.options());
  return bmm_out(self, mat2, result);
}

Tensor sparse_sparse_matmul(const Tensor& self, const Tensor& other) {
  check_devices("_sparse_sparse_matmul", {self, other});
  DeviceOf guard(self);
  TORCH_CHECK(self.is_sparse() && other.is_sparse(), "sparse_matmul: expected two sparse matrices");
  TORCH_CHECK(self.dim() == 2 && other.dim() == 2, "sparse_matmul: both must be matrices");
  TORCH_CHECK(self.dense_dim() == 0, "sparse_matmul: scalar values expected, got ", self.dense_dim(), "D values");
  TORCH_CHECK(other.dense_dim() == 0, "sparse_matmul: scalar values expected, got ", other.dense_dim(), "D values");
  TORCH_CHECK(self.size(1) == other.size(0), "mat1 and mat2 shapes cannot be multiplied (", self.size(0), "x",
              self.size(1), " and ", other.size(0), "x", other.size(1), ")");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "mat1 dtype ", self.dtype(), " does not match mat2 dtype ",
              other.dtype());
  return sparse_product(self, other);
}

// Rows of the result that have an element, each a dense one.
Tensor& hspmm_out(const Tensor& mat1, const Tensor& mat2, Tensor& result) {
  check_devices("hspmm", {mat1, mat2, result});
  DeviceOf guard(mat1);
  check_matrices("hspmm", mat1, mat2);
  const std::array<int64_t, 2> sizes{mat1.size(0), mat2.size(1)};
  const Tensor scaled = mat2.index_select(0, mat1._indices().select(0, 1)).mul(mat1._values().unsqueeze(1));
  const Tensor rows = make_coo(sizes, mat1._indices().narrow(0, 0, 1), scaled, false).coalesce();
  put_coo(result, sizes, rows._indices(), rows._values(), true);
  return result;
}

Tensor hspmm(const Tensor& mat1, const Tensor& mat2) {
  Tensor result = at::empty({0}, mat1.options());
  return hspmm_out(mat1, mat2, result);
}

Tensor& sspaddmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha, Tensor& result) {
  check_devices("sspaddmm", {mat1, self, mat2, result});
  DeviceOf guard(mat1);
  check_matrices("sspaddmm", mat1, mat2);
  const std::array<int64_t, 2> sizes{mat1.size(0), mat2.size(1)};
  const bool nothing_added = self._nnz() == 0;
  TORCH_CHECK(nothing_added || self.sizes().equals(sizes), "sspaddmm: Argument #1: Expected sizes ", IntArrayRef(sizes),
              ", got ", self.sizes());
  const Tensor rows = sparse::hspmm(mat1, mat2);
  const int64_t k = mat2.size(1);
  const Tensor row = rows._indices().select(0, 0).unsqueeze(1).expand({-1, k}).reshape({-1});
  const Tensor column = at::arange(k, row.options()).expand({rows._nnz(), k}).reshape({-1});
  Tensor indices = at::stack({row, column}), values = rows._values().reshape({-1}).mul(alpha);
  if (!nothing_added) {
    indices = at::cat({self._indices(), indices}, 1);
    values = at::cat({self._values().mul(beta), values});
  }
  put_coo(result, sizes, indices, values, false);
  return result;
}

}  // namespace at::native::npu::sparse
