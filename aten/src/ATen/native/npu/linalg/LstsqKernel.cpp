// Least squares: which of the four results exist depends on the driver, and one on the ranks that were found.

#include <ATen/ExpandUtils.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/linalg/Matrices.h>
#include <NPUNativeFunctions.h>

#include <algorithm>
#include <limits>

namespace at::native::npu {

std::tuple<Tensor&, Tensor&, Tensor&, Tensor&> linalg_lstsq_out(const Tensor& self, const Tensor& b,
                                                                std::optional<double> rcond,
                                                                std::optional<std::string_view> driver,
                                                                Tensor& solution, Tensor& residuals, Tensor& rank,
                                                                Tensor& singular_values) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), dtype_mask(kFloat, kDouble, kComplexFloat, kComplexDouble), "linalg_lstsq_cpu");
  TORCH_CHECK(self.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(b.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  TORCH_CHECK(self.scalar_type() == b.scalar_type(), "torch.linalg.lstsq: Expected input and other to have the same ",
              "dtype, but got input's dtype ", self.scalar_type(), " and other's dtype ", b.scalar_type());
  const int64_t missing = self.dim() - b.dim();
  TORCH_CHECK(missing == 0 || missing == 1, "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() ",
              "and (input.dim() - other.dim()) <= 1");
  // Only vectors for the very batch of matrices are vectors; whatever else has a dimension less is matrices.
  const bool vectors = linalg_solve_is_vector_rhs(self, b);
  const Tensor rhs = vectors ? b.unsqueeze(-1) : b;
  TORCH_CHECK(self.size(-2) == rhs.size(-2), vectors
                                                 ? "torch.linalg.lstsq: input.size(-2) should match other.size(-1)"
                                                 : "torch.linalg.lstsq: input.size(-2) should match other.size(-2)");
  const std::string name = driver.has_value() ? std::string(*driver) : "gelsy";
  TORCH_CHECK(name == "gels" || name == "gelsy" || name == "gelsd" || name == "gelss", "torch.linalg.lstsq: parameter ",
              "`driver` should be one of (gels, gelsy, gelsd, gelss)");
  const int64_t m = self.size(-2), n = self.size(-1), columns = rhs.size(-1);
  const auto batch_of = [&](const Tensor& t) { return t.sizes().slice(0, self.dim() - 2); };
  const DimVector batch = at::infer_size_dimvector(batch_of(self), batch_of(rhs));
  const auto shaped = [&](std::initializer_list<int64_t> tail) {
    DimVector sizes(batch);
    sizes.append(tail);
    return sizes;
  };
  const ScalarType dtype = self.scalar_type(), real = c10::toRealValueType(dtype);
  // Of matrices with a dimension less upstream takes the leading sizes for the batch, and broadcasts all the same.
  if (rhs.dim() < self.dim()) at::infer_size_dimvector(batch, rhs.sizes().slice(0, rhs.dim() - 2));
  const Tensor other = rhs.dim() < self.dim() ? rhs.expand(shaped({m, columns})) : rhs;
  const Device device = self.device();
  const bool ranks = name != "gels", singular = name == "gelsd" || name == "gelss";
  const bool rests = m > n && name != "gelsy";
  const DimVector of_self(batch_of(self));
  DimVector singular_sizes(of_self);
  singular_sizes.push_back(std::min(m, n));
  const Tensor x = empty_npu(shaped({n, columns}), dtype, device);
  const Tensor rest = empty_npu(rests ? shaped({columns}) : DimVector({0}), real, device);
  const Tensor found = empty_npu(ranks ? of_self : DimVector({0}), kLong, device);
  const Tensor values = empty_npu(singular ? singular_sizes : DimVector({0}), real, device);
  if (lacks("LeastSquares")) {
    const double epsilon =
        real == kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
    const double limit = rcond.value_or(epsilon * static_cast<double>(std::max(m, n)));
    const LeastSquares solved = least_squares(self, other, ranks ? limit : 0);
    x.copy_(solved.solution);
    if (rests) rest.copy_(solved.residuals);
    if (ranks) found.copy_(solved.rank);
    if (singular) values.copy_(solved.singular_values);
  } else if (x.numel() + rest.numel() + found.numel() + values.numel() > 0) {
    OpCommand cmd;
    cmd.Name("LeastSquares").Input(self).Input(other);
    cmd.Input(rcond.has_value() ? std::optional<Scalar>(*rcond) : std::nullopt, kDouble);
    cmd.Output(x).Output(rest).Output(found).Output(values).Attr("driver", name).Run();
  }
  give(vectors ? x.squeeze(-1) : x, solution);
  // Residuals exist where all matrices have full rank, which the device finds out.
  const bool full = rests && (!ranks || found.eq(n).all().item<bool>());
  give(full ? rest : empty_npu({0}, real, device), residuals);
  give(found, rank);
  give(values, singular_values);
  return std::forward_as_tuple(solution, residuals, rank, singular_values);
}

}  // namespace at::native::npu
