// Results and arguments of decompositions and solvers that upstream has no meta kernel for, or whose meta kernel does
// not look.

#include <ATen/MemoryOverlap.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_cholesky_ex.h>

#include <cmath>
#include <optional>

namespace at::native::npu {

OutputSpecs geqrf_outputs(const AtenArguments& a) {
  const Tensor& self = a.tensor("self");
  TORCH_CHECK(self.dim() >= 2, "torch.geqrf: input must have at least 2 dimensions.");
  DimVector tau(self.sizes().slice(0, self.dim() - 1));
  tau.back() = std::min(self.size(-2), self.size(-1));
  return {a.like("self"), output_of(self.scalar_type(), tau)};
}

OutputSpecs linear_combination_outputs(const AtenArguments& a) {
  const Tensor &input = a.tensor("input"), &coefficients = a.tensor("coefficients");
  TORCH_CHECK(input.dim() > 0 && input.size(0) == coefficients.size(1),
              "_compute_linear_combination: expected as many ", "summands as coefficients has columns, but found ",
              input.sizes(), " and ", coefficients.sizes());
  DimVector sizes(input.sizes());
  sizes[0] = coefficients.size(0);
  return {output_of(input.scalar_type(), sizes)};
}

void check_ormqr(const AtenArguments& a) {
  const Tensor &input = a.tensor("self"), &tau = a.tensor("input2"), &other = a.tensor("input3");
  if (input.dim() < 2 || tau.dim() < 1 || other.dim() < 2) return;  // upstream's meta kernel tells
  const int64_t side = a["left"].toBool() ? -2 : -1;
  TORCH_CHECK(tau.size(-1) == std::min(other.size(side), input.size(-1)),
              "torch.ormqr: tau.shape[-1] must be equal to min(other.shape[", side, "], input.shape[-1])");
}

void check_pivot(const AtenArguments& a) {
  TORCH_CHECK(a["pivot"].toBool() || a.tensor("A").numel() == 0,
              "linalg.lu_factor: LU without pivoting is not implemented on npu: leave pivot=True");
}

void check_ldl_pivots(const AtenArguments& a) {
  const ScalarType type = a.tensor("pivots").scalar_type();
  TORCH_CHECK(isIntegralType(type, /*includeBool=*/false) && !isBarebonesUnsignedType(type),
              "torch.linalg.ldl_solve: Expected pivots to be integers. Got ", type);
}

// The substitution runs in the memory of the result.
void check_solution(const AtenArguments& a) {
  for (const char* name : {"out", "X"}) {
    for (const char* right : {"self", "B"}) {
      if (a.has(name) && a.has(right)) at::assert_no_partial_overlap(a.tensor(name), a.tensor(right));
    }
  }
}

namespace {

// At the call, as upstream on every device: the host waits for it.
void check_finite(const char* name, const Tensor& matrices) {
  TORCH_CHECK(matrices.isfinite().all().item<bool>(), name, ": input tensor should not contain infs or NaNs.");
}

}  // namespace

void check_eig(const AtenArguments& a) { check_finite("torch.linalg.eig", a.tensor("self")); }

// Upstream does not look, and LAPACK then writes where it should not.
void check_eigvals(const AtenArguments& a) {
  check_dtype(a.tensor("self").scalar_type(), ~dtype_mask(kHalf, kBFloat16, kComplexHalf), "linalg_eigvals");
  check_finite("torch.linalg.eigvals", a.tensor("self"));
}

// LAPACK's answer to NaN, which upstream words.
void check_svd(const AtenArguments& a) {
  const Tensor& matrices = a.tensor("A");
  if (matrices.dim() < 2 || matrices.numel() == 0) return;
  at::_linalg_check_errors(matrices.isnan().flatten(-2).any(-1).to(kInt).mul(-4), "linalg.svd", matrices.dim() == 2);
}

// A factor with a zero on its diagonal: LAPACK tells the first one's number.
void check_cholesky_inverse(const AtenArguments& a) {
  const Tensor& factor = a.tensor("self");
  if (factor.dim() < 2 || factor.size(-1) != factor.size(-2) || factor.numel() == 0) return;
  const Tensor zero = factor.diagonal(0, -2, -1).eq(0).to(kInt);
  at::_linalg_check_errors(zero.argmax(-1).add(1).mul(zero.amax(-1)).to(kInt), "cholesky_inverse", factor.dim() == 2);
}

// Upstream's old name for it, which tells of failures at the call, and takes whatever is empty as it is.
std::optional<std::vector<Tensor>> checked_cholesky(const AtenArguments& a) {
  const Tensor& self = a.tensor("self");
  if (self.numel() == 0) return std::vector<Tensor>{at::empty_like(self, LEGACY_CONTIGUOUS_MEMORY_FORMAT)};
  squareCheckInputs(self, "cholesky");
  auto [factor, info] = at::linalg_cholesky_ex(self, a["upper"].toBool());
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return std::vector<Tensor>{factor};
}

void check_cdist(const AtenArguments& a) { check_one_dtype("cdist", a.tensor("x1"), a.tensor("x2")); }

}  // namespace at::native::npu
