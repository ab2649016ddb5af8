// CSR, CSC, BSR and BSC tensors: sums and products. Their elements are those of a COO tensor once the bounds of rows
// are written out.

#include <ATen/native/npu/sparse/Sparse.h>
#include <ATen/native/npu/sparse/SparseKernels.h>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/ops/_to_sparse_bsc_native.h>
#include <ATen/ops/_to_sparse_bsr_native.h>

namespace at::native::npu::sparse {
namespace {

bool is_compressed(const Tensor& t) { return at::sparse_csr::is_sparse_compressed(t); }

struct Elements {
  Tensor rows, columns, values;  // of blocks where the values are (n, height, width)
};

Elements elements_of(const Tensor& t) {
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(t);
  const Tensor along = rows_of(compressed, plain.size(-1)).to(kLong), across = plain.to(kLong);
  const bool by_row = t.layout() == kSparseCsr || t.layout() == kSparseBsr;
  return by_row ? Elements{along, across, t.values()} : Elements{across, along, t.values()};
}

Elements transposed(const Elements& e) {
  return {e.columns, e.rows, e.values.dim() == 3 ? e.values.transpose(1, 2) : e.values};
}

// Gives `result` the contents of a matrix of its layout; indices keep the dtype that they have in `like`.
void put_compressed(const Tensor& result, const Tensor& matrix, const Tensor& like) {
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(matrix);
  const ScalarType type = std::get<0>(at::sparse_csr::getCompressedPlainIndices(like)).scalar_type();
  at::sparse_csr::get_sparse_csr_impl(result)->set_member_tensors(
      compressed.to(type), plain.to(type), matrix.values().to(result.scalar_type()), matrix.sizes());
}

Tensor in_layout(const Tensor& coo, const Tensor& like) {
  switch (like.layout()) {
    case kSparseCsr:
      return coo.to_sparse_csr();
    case kSparseCsc:
      return coo.to_sparse_csc();
    case kSparseBsr:
      return coo.to_sparse_bsr(at::sparse_csr::getBlockSize(like));
    default:
      return coo.to_sparse_bsc(at::sparse_csr::getBlockSize(like));
  }
}

// `matrix` of CSR or kin, transposed or not, times a dense one.
Tensor times(const Tensor& matrix, const Tensor& dense, bool transpose) {
  const int64_t m = matrix.size(transpose ? 1 : 0);
  if (matrix.layout() == kSparseCsr || matrix.layout() == kSparseCsc) {
    const auto [bounds, places] = at::sparse_csr::getCompressedPlainIndices(matrix);
    const bool by_column = (matrix.layout() == kSparseCsc) != transpose;
    if (auto at_once = compressed_product(bounds, places, matrix.values(), m, dense, by_column)) return *at_once;
  }
  const Elements e = transpose ? transposed(elements_of(matrix)) : elements_of(matrix);
  return product(e.rows, e.columns, e.values, m, dense);
}

Tensor matrix_product(const Tensor& mat1, const Tensor& mat2) {
  if (is_compressed(mat1) && mat2.layout() == kStrided) return times(mat1, mat2, false);
  if (mat1.layout() == kStrided && is_compressed(mat2)) return times(mat2, mat1.t(), true).t();
  const auto coo = [](const Tensor& t) { return t.is_sparse() ? t : t.to_sparse(); };
  return sparse_product(coo(mat1), coo(mat2));
}

bool is_sparse_layout(const Tensor& t) { return t.layout() != kStrided; }

// The blocks of a CSR or CSC matrix that have an element.
Tensor in_blocks(const Tensor& self, Layout layout, IntArrayRef blocks) {
  DeviceOf guard(self);
  TORCH_CHECK(self.dim() == 2, "to_sparse_", layout == kSparseBsr ? "bsr" : "bsc", ": conversion from ", self.layout(),
              " is only possible for 2d inputs, but got input of dimension ", self.dim(), " instead.");
  TORCH_CHECK(blocks.size() == 2 && blocks[0] > 0 && blocks[1] > 0, "blocksize needs two positive sizes, got ", blocks);
  TORCH_CHECK(self.size(0) % blocks[0] == 0 && self.size(1) % blocks[1] == 0, "tensor sparse size (", self.size(0), ",",
              self.size(1), ") must be divisible by given blocksize (", blocks[0], ",", blocks[1], ")");
  const Elements e = elements_of(self);
  const bool by_row = layout == kSparseBsr;
  const int64_t height = blocks[0], width = blocks[1];
  const int64_t along_count = by_row ? self.size(0) / height : self.size(1) / width;
  const int64_t across_count = std::max<int64_t>(1, by_row ? self.size(1) / width : self.size(0) / height);
  const Tensor row = e.rows.div(height, "floor"), column = e.columns.div(width, "floor");
  const auto [block, which, counts] =
      at::_unique2((by_row ? row : column).mul(across_count).add(by_row ? column : row), true, true);
  const Tensor place =
      which.mul(height).add(e.rows.sub(row.mul(height))).mul(width).add(e.columns.sub(column.mul(width)));
  const Tensor values = at::zeros({block.numel() * height * width}, e.values.options()).scatter_(0, place, e.values);
  const ScalarType type = std::get<0>(at::sparse_csr::getCompressedPlainIndices(self)).scalar_type();
  return at::_sparse_compressed_tensor_unsafe(
      bounds_of(block.div(across_count, "floor"), along_count).to(type), block.remainder(across_count).to(type),
      values.view({block.numel(), height, width}), self.sizes(), e.values.options().layout(layout));
}

bool has_blocks(const Tensor& t) { return t.layout() == kSparseBsr || t.layout() == kSparseBsc; }

}  // namespace

Tensor compressed_to_bsr(const Tensor& self, IntArrayRef blocks, std::optional<int64_t> dense_dim) {
  if (has_blocks(self)) return at::native::sparse_compressed_to_sparse_bsr(self, blocks, dense_dim);
  return in_blocks(self, kSparseBsr, blocks);
}

Tensor compressed_to_bsc(const Tensor& self, IntArrayRef blocks, std::optional<int64_t> dense_dim) {
  if (has_blocks(self)) return at::native::sparse_compressed_to_sparse_bsc(self, blocks, dense_dim);
  return in_blocks(self, kSparseBsc, blocks);
}

Tensor& compressed_add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& result) {
  check_devices("add", {self, other, result});
  DeviceOf guard(result);
  if (self.layout() == kStrided) {
    TORCH_CHECK(result.layout() == kStrided, "add: expected 'out' to be dense where 'self' is");
    return at::add_out(result, self, other.to_sparse(), alpha);
  }
  TORCH_CHECK(other.layout() != kStrided, "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.sizes().equals(other.sizes()), "torch.add: Expected input tensors to have the same shape, but got ",
              "tensor `self` with shape ", self.sizes(), " and tensor `other` with shape ", other.sizes());
  TORCH_CHECK(self.layout() == other.layout() && result.layout() == self.layout(), "add: expected operands of one ",
              "layout, got ", self.layout(), ", ", other.layout(), " and an out of ", result.layout());
  const Tensor sum = at::add(self.to_sparse(), other.to_sparse(), alpha).coalesce();
  put_compressed(result, in_layout(sum, self), self);
  return result;
}

Tensor& compressed_addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                             const Scalar& alpha, Tensor& result) {
  check_devices("addmm", {result, self, mat1, mat2});
  DeviceOf guard(result);
  TORCH_CHECK(mat1.dim() == 2, "addmm: Expected mat1 to be 2-D matrix, but got ", mat1.dim(), "-D");
  TORCH_CHECK(mat2.dim() == 2, "addmm: Expected mat2 to be 2-D matrix, but got ", mat2.dim(), "-D");
  TORCH_CHECK(mat1.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (", mat1.size(0), "x",
              mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  TORCH_CHECK(mat1.scalar_type() == mat2.scalar_type() && self.scalar_type() == mat1.scalar_type(),
              "addmm: Expected operands of one dtype, got ", self.scalar_type(), ", ", mat1.scalar_type(), " and ",
              mat2.scalar_type());
  const std::array<int64_t, 2> sizes{mat1.size(0), mat2.size(1)};
  Tensor sum = matrix_product(mat1, mat2);
  if (!alpha.equal(1)) sum = sum.mul(alpha);
  const bool adds = !beta.equal(0);
  if (result.layout() == kStrided) {
    sum = sum.is_sparse() ? sum.to_dense() : sum;
    if (adds) {
      const Tensor added = is_sparse_layout(self) ? self.to_dense() : self;
      sum = sum.add(expand_size(added, sizes, "addmm")->to(sum.scalar_type()), beta);
    }
    if (!result.sizes().equals(sizes)) result.resize_(sizes);
    return result.copy_(sum);
  }
  TORCH_CHECK(is_compressed(result) && is_sparse_layout(mat1) && is_sparse_layout(mat2),
              "addmm: computation on npu is not implemented for ", result.layout(), " + ", mat1.layout(), " @ ",
              mat2.layout());
  if (adds) {
    TORCH_CHECK(is_sparse_layout(self), "addmm: Expected self to be sparse where the result is, got ", self.layout());
    sum = at::add(sum, self.is_sparse() ? self : self.to_sparse(), beta).coalesce();
  }
  put_compressed(result, in_layout(sum, result), is_compressed(mat1) ? mat1 : result);
  return result;
}

Tensor& compressed_addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
                             const Scalar& alpha, Tensor& result) {
  TORCH_CHECK(mat.dim() == 2 && vec.dim() == 1 && mat.size(1) == vec.size(0), "size mismatch, got input (", mat.sizes(),
              ") and vec (", vec.sizes(), ")");
  const std::array<int64_t, 1> sizes{mat.size(0)};
  if (!result.sizes().equals(sizes)) result.resize_(sizes);
  Tensor column = at::empty({mat.size(0), 1}, result.options());
  compressed_addmm_out(expand_size(self, sizes, "addmv")->unsqueeze(1), mat, vec.unsqueeze(1), beta, alpha, column);
  return result.copy_(column.squeeze(1));
}

// Sums along dimensions of a CSR matrix stay CSR: what is summed becomes one row or column.
Tensor compressed_sum(const Tensor& self, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  DeviceOf guard(self);
  TORCH_CHECK(keepdim, "reduction operations on CSR tensors with keepdim=False is unsupported");
  TORCH_CHECK(self.layout() == kSparseCsr && self.dim() == 2,
              "only CSR matrices have sums along dimensions, got layout ", self.layout(), " and ", self.dim(),
              " dimensions");
  const auto summed = at::dim_list_to_bitset(dim, 2);
  const bool integral = at::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  const Tensor coo = self.to_sparse();
  Tensor indices = coo._indices().clone();
  DimVector sizes(self.sizes());
  for (int64_t d = 0; d < 2; ++d) {
    if (!summed[d]) continue;
    indices.select(0, d).zero_();
    sizes[d] = 1;
  }
  const Tensor values = coo._values().to(dtype.value_or(integral ? kLong : self.scalar_type()));
  return make_coo(sizes, indices, values, false).coalesce().to_sparse_csr();
}

Tensor& sampled_addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                          const Scalar& alpha, Tensor& result) {
  check_devices("sampled_addmm", {self, mat1, mat2, result});
  DeviceOf guard(self);
  TORCH_CHECK(self.layout() == kSparseCsr, "Expected `self` to be sparse csr tensor, but got ", self.layout());
  TORCH_CHECK(mat1.layout() == kStrided, "sampled_addmm: Expected mat1 to have strided layout, but got ",
              mat1.layout());
  TORCH_CHECK(mat2.layout() == kStrided, "sampled_addmm: Expected mat2 to have strided layout, but got ",
              mat2.layout());
  TORCH_CHECK(result.layout() == kSparseCsr, "sampled_addmm: Expected result to have sparse csr layout, but got ",
              result.layout());
  TORCH_CHECK(mat1.scalar_type() == mat2.scalar_type(),
              "sampled_addmm: Expected mat1 and mat2 to have the same dtype, ", "but got ", mat1.scalar_type(), " and ",
              mat2.scalar_type());
  TORCH_CHECK(self.scalar_type() == mat1.scalar_type(),
              "sampled_addmm: Expected self and mat1 to have the same dtype, ", "but got ", self.scalar_type(), " and ",
              mat1.scalar_type());
  TORCH_CHECK(self.dim() == 2 && mat1.dim() == 2 && mat2.dim() == 2,
              "sampled_addmm: batches are not supported on npu, got ", self.dim(), ", ", mat1.dim(), " and ",
              mat2.dim(), " dimensions");
  TORCH_CHECK(mat1.size(1) == mat2.size(0), "sampled_addmm: mat1 and mat2 shapes cannot be multiplied (", mat1.size(0),
              "x", mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  TORCH_CHECK(self.size(0) == mat1.size(0) && self.size(1) == mat2.size(1), "sampled_addmm: self.shape must match the ",
              "product's, got ", self.sizes(), " and ", mat1.size(0), "x", mat2.size(1));
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(self);
  Tensor values;
  if (auto at_once = sampled_product(compressed, plain, mat1, mat2)) {
    values = *at_once;
  } else {
    const Elements e = elements_of(self);
    const auto taken = [](const Tensor& rows, const Tensor& at) {
      return wide(rows.index_select(0, at), rows.scalar_type());
    };
    values = taken(mat1, e.rows).mul(taken(mat2.t(), e.columns)).sum(1);
  }
  if (!alpha.equal(1)) values = values.mul(alpha);
  if (!beta.equal(0)) values = values.add(wide(self.values(), self.scalar_type()), beta);
  at::sparse_csr::get_sparse_csr_impl(result)->set_member_tensors(
      result.is_same(self) ? compressed : compressed.clone(), result.is_same(self) ? plain : plain.clone(),
      values.to(result.scalar_type()), self.sizes());
  return result;
}

Tensor sampled_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha) {
  Tensor result = at::empty({0, 0}, self.options());
  return sampled_addmm_out(self, mat1, mat2, beta, alpha, result);
}

}  // namespace at::native::npu::sparse
