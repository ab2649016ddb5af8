// LU and Cholesky factors by columns, and what follows from them: determinants, inverses, solutions. CANN's own
// operators refuse singular matrices instead of giving a status, and do not give pivots.

#include <ATen/ATen.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>
#include <ATen/native/npu/linalg/Matrices.h>

namespace at::native::npu {
namespace {

struct Lu {
  Tensor factors;  // L below the diagonal, U on it and above
  Tensor pivots;   // int32, from 1: with which row each was exchanged, in order
  Tensor info;     // int32: the first column, from 1, without a pivot, or 0
};

DimVector batch_with(const Tensor& t, int64_t size) { return with_tail(t, {size}); }

// The number, from 1, of the first that is true along the last dimension; 0 where none is.
Tensor first_of(const Tensor& flags) {
  if (flags.size(-1) == 0) return at::zeros(flags.sizes().slice(0, flags.dim() - 1), flags.options().dtype(kInt));
  const Tensor number = flags.to(kFloat).argmax(-1) + 1;
  return at::where(flags.any(-1), number, at::zeros_like(number)).to(kInt);
}

// Exchanges a row for another, which differs within the batch.
void exchange_rows(const Tensor& t, int64_t row, const Tensor& other) {
  const Tensor index = other.unsqueeze(-1).expand(with_tail(t, {1, t.size(-1)}));
  const Tensor mine = t.narrow(-2, row, 1).clone(), theirs = t.gather(-2, index);
  t.scatter_(-2, index, mine);
  t.narrow(-2, row, 1).copy_(theirs);
}

// By what LAPACK compares.
Tensor size_of_pivot(const Tensor& t) { return t.is_complex() ? at::real(t).abs() + at::imag(t).abs() : t.abs(); }

Lu factor(const char* ir, const Tensor& matrix) {
  const int64_t m = matrix.size(-2), n = matrix.size(-1), k = std::min(m, n);
  check_columns(ir, k);
  const Tensor lu = matrix.clone(MemoryFormat::Contiguous);
  const TensorOptions numbers = matrix.options().dtype(kInt);
  if (lu.numel() == 0) return {lu, at::empty(batch_with(lu, k), numbers), first_of(lu.diagonal(0, -2, -1).eq(0))};
  std::vector<Tensor> chosen;
  for (int64_t j = 0; j < k; ++j) {
    const Tensor candidates = lu.narrow(-2, j, m - j).select(-1, j);
    chosen.push_back(size_of_pivot(candidates).argmax(-1, /*keepdim=*/true) + j);
    exchange_rows(lu, j, chosen.back());
    if (j + 1 == m) break;
    const Tensor row = lu.narrow(-2, j, 1), rest = lu.narrow(-2, j + 1, m - j - 1);
    const Tensor pivot = row.narrow(-1, j, 1), column = rest.narrow(-1, j, 1);
    column.div_(at::where(pivot.eq(0), at::ones_like(pivot), pivot));
    if (j + 1 < n) rest.narrow(-1, j + 1, n - j - 1).sub_(column * row.narrow(-1, j + 1, n - j - 1));
  }
  return {lu, at::cat(chosen, -1).add(1).to(kInt), first_of(lu.diagonal(0, -2, -1).eq(0))};
}

// Where each row was before the exchanges.
Tensor permutation(const char* ir, const Tensor& pivots, int64_t rows) {
  check_columns(ir, pivots.size(-1));
  DimVector sizes(pivots.sizes());
  sizes.back() = rows;
  const Tensor order = at::arange(rows, pivots.options().dtype(kLong)).expand(sizes).clone(MemoryFormat::Contiguous);
  const Tensor column = order.unsqueeze(-1), places = pivots.to(kLong) - 1;
  for (int64_t j = 0; order.numel() > 0 && j < pivots.size(-1); ++j) exchange_rows(column, j, places.narrow(-1, j, 1));
  return order;
}

Tensor solve_by(const char* ir, const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint) {
  if (!left) return turned(solve_by(ir, lu, pivots, turned(b), /*left=*/true, !adjoint));
  const auto batch_of = [](const Tensor& t) { return t.sizes().slice(0, t.dim() - 2); };
  DimVector sizes = at::infer_size_dimvector(batch_of(lu), batch_of(b));
  sizes.append({b.size(-2), b.size(-1)});
  const Tensor rows = permutation(ir, pivots, lu.size(-1)).unsqueeze(-1).expand(sizes);
  if (!adjoint) {
    const Tensor first = solve_triangular(lu, b.expand(sizes).gather(-2, rows), {.upper = false, .unit = true});
    return solve_triangular(lu, first, {.upper = true});
  }
  const Tensor first = solve_triangular(lu, b.expand(sizes), {.upper = true, .adjoint = true});
  const Tensor second = solve_triangular(lu, first, {.upper = false, .unit = true, .adjoint = true});
  return at::zeros_like(second).scatter(-2, rows, second);
}

// -1 to the number of exchanges.
Tensor parity(const Tensor& pivots) {
  const Tensor in_place = at::arange(1, pivots.size(-1) + 1, pivots.options());
  return in_place.ne(pivots).sum(-1).remainder(2).mul(-2).add(1);
}

// For determinants upstream factors the transpose where that lies in memory column by column; its gradients count on
// it.
Lu factor_for_determinant(const char* ir, const Tensor& matrix) {
  return factor(ir, matrix.is_contiguous() && !matrix.is_complex() ? matrix.transpose(-2, -1) : matrix);
}

std::vector<Tensor> unpack(const char* ir, const Tensor& lu, const Tensor& pivots, bool data, bool exchanges) {
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  const Tensor none = at::empty({0}, lu.options());
  Tensor p = none, l = none, u = none;
  if (data) {
    u = lu.narrow(-2, 0, k).triu();
    l = lu.narrow(-1, 0, k).tril(-1);
    if (l.numel() > 0) l.diagonal(0, -2, -1).fill_(1);
  }
  if (exchanges) {
    const Tensor order = permutation(ir, pivots, m);
    p = at::arange(m, order.options()).unsqueeze(-1).eq(order.unsqueeze(-2)).to(lu.scalar_type());
  }
  return {p, l, u};
}

struct Cholesky {
  Tensor factor, info;
};

Cholesky cholesky_of(const char* ir, const Tensor& matrix, bool upper) {
  const int64_t n = matrix.size(-1);
  check_columns(ir, n);
  const Tensor l = (upper ? turned(matrix) : matrix).clone(MemoryFormat::Contiguous);
  std::vector<Tensor> failed;
  for (int64_t j = 0; l.numel() > 0 && j < n; ++j) {
    const Tensor pivot = l.narrow(-2, j, 1).narrow(-1, j, 1);
    const Tensor square = l.is_complex() ? at::real(pivot) : pivot;
    failed.push_back(square.gt(0).logical_not());
    const Tensor root = square.sqrt();
    if (j + 1 < n) {
      const Tensor rest = l.narrow(-2, j + 1, n - j - 1), column = rest.narrow(-1, j, 1);
      column.div_(root);
      rest.narrow(-1, j + 1, n - j - 1).sub_(column * turned(column));
    }
    pivot.copy_(root);
  }
  const Tensor flags =
      failed.empty() ? at::zeros(batch_with(l, n), l.options().dtype(kBool)) : at::cat(failed, -1).squeeze(-2);
  const Tensor lower = l.tril();
  return {upper ? turned(lower) : lower, first_of(flags)};
}

}  // namespace

std::vector<Tensor> composed_lu_factor(const AtenArguments& a) {
  const Tensor& matrix = a.tensor("A");
  const Lu lu = factor("LuFactor", matrix);
  if (a["check_errors"].toBool()) at::_linalg_check_errors(lu.info, "torch.linalg.lu_factor_ex", matrix.dim() == 2);
  return {lu.factors, lu.pivots, lu.info};
}

std::vector<Tensor> composed_lu(const AtenArguments& a) {
  const Lu lu = factor("LinalgLu", a.tensor("A"));
  return unpack("LinalgLu", lu.factors, lu.pivots, /*data=*/true, a["pivot"].toBool());
}

std::vector<Tensor> composed_lu_unpack(const AtenArguments& a) {
  return unpack("LuUnpack", a.tensor("LU_data"), a.tensor("LU_pivots"), a["unpack_data"].toBool(),
                a["unpack_pivots"].toBool());
}

std::vector<Tensor> composed_lu_solve(const AtenArguments& a) {
  return {solve_by("LuSolve", a.tensor("LU"), a.tensor("pivots"), a.tensor("B"), a["left"].toBool(),
                   a["adjoint"].toBool())};
}

std::vector<Tensor> composed_det(const AtenArguments& a) {
  const Lu lu = factor_for_determinant("LinalgDet", a.tensor("A"));
  return {lu.factors.diagonal(0, -2, -1).prod(-1) * parity(lu.pivots), lu.factors, lu.pivots};
}

std::vector<Tensor> composed_slogdet(const AtenArguments& a) {
  const Lu lu = factor_for_determinant("LinalgSlogdet", a.tensor("A"));
  const Tensor diagonal = lu.factors.diagonal(0, -2, -1);
  return {diagonal.sgn().prod(-1) * parity(lu.pivots), diagonal.abs().log().sum(-1), lu.factors, lu.pivots};
}

std::vector<Tensor> composed_solve(const AtenArguments& a) {
  const Tensor &matrix = a.tensor("A"), &b = a.tensor("B");
  const bool vector = linalg_solve_is_vector_rhs(matrix, b);
  const Lu lu = factor("LinalgSolve", matrix);
  if (a["check_errors"].toBool()) at::_linalg_check_errors(lu.info, "torch.linalg.solve_ex", matrix.dim() == 2);
  const Tensor x = solve_by("LinalgSolve", lu.factors, lu.pivots, vector ? b.unsqueeze(-1) : b, a["left"].toBool(),
                            /*adjoint=*/false);
  return {vector ? x.squeeze(-1) : x, lu.factors, lu.pivots, lu.info};
}

std::vector<Tensor> composed_inverse(const AtenArguments& a) {
  const Tensor& matrix = a.tensor("A");
  const Lu lu = factor("LinalgInv", matrix);
  if (a["check_errors"].toBool()) at::_linalg_check_errors(lu.info, "linalg.inv_ex", matrix.dim() == 2);
  const Tensor unit = at::eye(matrix.size(-1), matrix.options());
  return {solve_by("LinalgInv", lu.factors, lu.pivots, unit, /*left=*/true, /*adjoint=*/false), lu.info};
}

std::vector<Tensor> composed_cholesky_ex(const AtenArguments& a) {
  const Cholesky found = cholesky_of("CholeskyEx", a.tensor("self"), a["upper"].toBool());
  if (a["check_errors"].toBool()) {
    at::_linalg_check_errors(found.info, "linalg.cholesky_ex", a.tensor("self").dim() == 2);
  }
  return {found.factor, found.info};
}

}  // namespace at::native::npu
