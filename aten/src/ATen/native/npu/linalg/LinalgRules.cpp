// Results and arguments of decompositions and solvers that upstream has no meta kernel for, or whose meta kernel does
// not look.

#include <ATen/MemoryOverlap.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>

#include <cmath>

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

void check_no_half(const AtenArguments& a) {
  check_dtype(a.tensor("self").scalar_type(), ~dtype_mask(kHalf, kBFloat16, kComplexHalf), "linalg_eigvals");
}

void check_cdist(const AtenArguments& a) { check_one_dtype("cdist", a.tensor("x1"), a.tensor("x2")); }

}  // namespace at::native::npu
