// Decompositions, solvers and distances: one ATen operator each.

#include "exec/definition/aten.h"
#include "ops/common.h"
#include "ops/index/index_range.h"

namespace acl_sim {
namespace {

using at::Tensor;
void check_lu_pivots(OpContext& c) { check_range(c.in(1), 1, c.in(0).size(-1), "pivot"); }

void check_ldl_pivots(OpContext& c) {
  const at::Tensor pivots = c.in(1);
  check_range(pivots.abs(), 1, c.in(0).size(-1), "pivot");
}

// LAPACK writes where it should not.
void check_finite(OpContext& c) {
  TORCH_CHECK(c.in(0).isfinite().all().item<bool>(), "the input holds infinities or NaN");
}

SIM_ATEN(LinalgCholesky, "cholesky.out");
SIM_ATEN(CholeskyInverse, "cholesky_inverse.out");
SIM_ATEN(CholeskySolve, "_cholesky_solve_helper");
SIM_ATEN(CholeskyEx, "linalg_cholesky_ex.L");
SIM_ATEN(LinalgDet, "_linalg_det.result");
SIM_ATEN(LinalgSlogdet, "_linalg_slogdet.sign");
SIM_ATEN(LinalgEigh, "_linalg_eigh.eigenvalues");
SIM_ATEN(Eig, "linalg_eig.out");
SIM_ATEN_CHECKED(EigenValues, "_linalg_eigvals", check_finite);
SIM_ATEN(LinalgSolve, "_linalg_solve_ex.result");
SIM_ATEN(LinalgSolveTriangular, "linalg_solve_triangular.out");
SIM_ATEN(TriangularSolve, "triangular_solve.X");
SIM_ATEN(LinalgSvd, "_linalg_svd.U");
SIM_ATEN(LinalgQr, "linalg_qr.out");
SIM_ATEN(Geqrf, "geqrf");
SIM_ATEN(Ormqr, "ormqr.out");
SIM_ATEN(HouseholderProduct, "linalg_householder_product.out");
SIM_ATEN(LinalgInv, "linalg_inv_ex.inverse");
SIM_ATEN(LdlFactor, "linalg_ldl_factor_ex.out");
SIM_ATEN_CHECKED(LdlSolve, "linalg_ldl_solve.out", check_ldl_pivots);
SIM_ATEN(LinalgLu, "linalg_lu.out");
SIM_ATEN(LuFactor, "linalg_lu_factor_ex.out");
SIM_ATEN_CHECKED(LuSolve, "linalg_lu_solve.out", check_lu_pivots);
SIM_ATEN(LuUnpack, "lu_unpack.out");
SIM_ATEN(MatrixExp, "linalg_matrix_exp");
SIM_ATEN(LinearCombination, "_compute_linear_combination");
SIM_ATEN(CdistForward, "_cdist_forward");
SIM_ATEN(CdistBackward, "_cdist_backward");
SIM_ATEN(PdistForward, "_pdist_forward");
SIM_ATEN(PdistGrad, "_pdist_backward");

}  // namespace
}  // namespace acl_sim
