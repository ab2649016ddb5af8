// Linear algebra as CANN has it, in batches of matrices: the last two dimensions.

#include "ops/common.h"

namespace acl_sim {
namespace {

constexpr DtypeSet kMatrixTypes = detail::dtype_bits(ACL_FLOAT, ACL_DOUBLE, ACL_COMPLEX64, ACL_COMPLEX128);

// One triangle of the matrix is read.
void triangular_solve(OpContext& c) {
  const bool lower = c.attrs().boolean("lower", true), adjoint = c.attrs().boolean("adjoint", false);
  const at::Tensor matrix = adjoint ? c.in(0).mH() : c.in(0);
  c.out(0).copy_(at::linalg_solve_triangular(matrix, c.in(1), lower == adjoint));
}

void qr(OpContext& c) {
  const bool full = c.attrs().boolean("full_matrices", false);
  const auto [q, r] = at::linalg_qr(c.in(0), full ? "complete" : "reduced");
  c.out(0).copy_(q);
  c.out(1).copy_(r);
}

// Values have the matrices' dtype, complex ones too.
void self_adjoint_eig(OpContext& c) {
  if (!c.attrs().boolean("compute_v", true)) {
    c.out(0).copy_(at::linalg_eigvalsh(c.in(0), "L"));
    return;
  }
  const auto [values, vectors] = at::linalg_eigh(c.in(0), "L");
  c.out(0).copy_(values);
  c.out(1).copy_(vectors);
}

void svd(OpContext& c) {
  if (!c.attrs().boolean("compute_uv", true)) {
    c.out(0).copy_(at::linalg_svdvals(c.in(0)));
    return;
  }
  const auto [u, s, vh] = at::linalg_svd(c.in(0), c.attrs().boolean("full_matrices", false));
  c.out(0).copy_(s);
  c.out(1).copy_(u);
  c.out(2).copy_(vh.mH());
}

SIM_OP(MatrixTriangularSolve)
    .costly()
    .inputs(2)
    .outputs(1)
    .dtypes(kMatrixTypes)
    .attrs({"lower:bool", "adjoint:bool"})
    .ai_cpu()
    .run(triangular_solve);
SIM_OP(Qr).costly().inputs(1).outputs(2).dtypes(kMatrixTypes).attrs({"full_matrices:bool"}).ai_cpu().run(qr);
SIM_OP(SelfAdjointEig)
    .costly()
    .inputs(1)
    .outputs(2)
    .dtypes(kMatrixTypes)
    .attrs({"compute_v:bool"})
    .ai_cpu()
    .run(self_adjoint_eig);
SIM_OP(Svd)
    .costly()
    .inputs(1)
    .outputs(3)
    .dtypes(kMatrixTypes)
    .attrs({"compute_uv:bool", "full_matrices:bool"})
    .ai_cpu()
    .run(svd);

}  // namespace
}  // namespace acl_sim
