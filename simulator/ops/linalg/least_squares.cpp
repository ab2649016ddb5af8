// Least squares by upstream's drivers, but for gelsy: upstream leaves what LAPACK reads of the order of the columns
// unset, and takes one matrix's order for the next; a matrix that is not of full rank then gets any solution.

#include <ATen/ExpandUtils.h>

#include "ops/common.h"

using CFloat = c10::complex<float>;
using CDouble = c10::complex<double>;

extern "C" {
void sgelsy_(const int* m, const int* n, const int* nrhs, float* a, const int* lda, float* b, const int* ldb, int* jpvt,
             const float* rcond, int* rank, float* work, const int* lwork, int* info);
void dgelsy_(const int* m, const int* n, const int* nrhs, double* a, const int* lda, double* b, const int* ldb,
             int* jpvt, const double* rcond, int* rank, double* work, const int* lwork, int* info);
void cgelsy_(const int* m, const int* n, const int* nrhs, CFloat* a, const int* lda, CFloat* b, const int* ldb,
             int* jpvt, const float* rcond, int* rank, CFloat* work, const int* lwork, float* rwork, int* info);
void zgelsy_(const int* m, const int* n, const int* nrhs, CDouble* a, const int* lda, CDouble* b, const int* ldb,
             int* jpvt, const double* rcond, int* rank, CDouble* work, const int* lwork, double* rwork, int* info);
}

namespace acl_sim {
namespace {

using at::Tensor;

// The operands of one call: a is m x n and b max(m, n) x columns, both by columns; both are overwritten.
template <typename T>
struct Problem {
  using Real = typename c10::scalar_value_type<T>::type;
  int m, n, columns;
  Real rcond;
  T *a = nullptr, *b = nullptr;
  std::vector<int> order{};
  std::vector<Real> real_work{};
  int rank = 0, info = 0;

  void call(T* work, int size) {
    const int rows = std::max(m, n);
    const auto gelsy = [&](auto* function, auto*... rest) {
      function(&m, &n, &columns, a, &m, b, &rows, order.data(), &rcond, &rank, work, &size, rest..., &info);
    };
    order.assign(n, 0);  // every column may go anywhere
    if constexpr (std::is_same_v<T, float>) gelsy(sgelsy_);
    if constexpr (std::is_same_v<T, double>) gelsy(dgelsy_);
    if constexpr (std::is_same_v<T, CFloat>) gelsy(cgelsy_, real_work.data());
    if constexpr (std::is_same_v<T, CDouble>) gelsy(zgelsy_, real_work.data());
    TORCH_CHECK(info == 0, "linalg.lstsq: LAPACK's gelsy returned ", info);
  }
};

// a: (batch, m, n), b: (batch, m, columns) -> x: (batch, n, columns), rank: (batch)
template <typename T>
std::pair<Tensor, Tensor> complete_orthogonal(const Tensor& a, const Tensor& b, std::optional<double> rcond) {
  using Real = typename Problem<T>::Real;
  const int64_t m = a.size(1), n = a.size(2), columns = b.size(2);
  const Tensor x = at::zeros({a.size(0), columns, std::max(m, n)}, b.options());
  x.narrow(2, 0, m).copy_(b.mT());
  const Tensor matrices = a.mT().clone(at::MemoryFormat::Contiguous), rank = at::zeros({a.size(0)}, at::kLong);
  const double least = static_cast<double>(std::numeric_limits<Real>::epsilon()) * std::max(m, n);
  Problem<T> problem{int(m), int(n), int(columns), Real(rcond.has_value() && *rcond > 0 ? *rcond : least)};
  problem.real_work.resize(2 * n);
  std::vector<T> work(1);
  for (int64_t i = 0; i < a.size(0) && n > 0 && columns > 0; ++i) {
    problem.a = matrices.mutable_data_ptr<T>() + i * m * n;
    problem.b = x.mutable_data_ptr<T>() + i * columns * std::max(m, n);
    if (i == 0) {
      problem.call(work.data(), -1);
      work.resize(std::max<size_t>(1, size_t(std::real(std::complex<Real>(work[0])))));
    }
    problem.call(work.data(), int(work.size()));
    rank.mutable_data_ptr<int64_t>()[i] = problem.rank;
  }
  return {x.mT().narrow(1, 0, n), rank};
}

// a, b, rcond -> solution, residuals, rank, singular values; those that the driver does not give are empty
void least_squares(OpContext& c) {
  std::optional<double> rcond;
  if (c.has_input(2)) rcond = c.in_scalar(2).toDouble();
  const std::string driver = c.attrs().text("driver", "gelsy");
  const Tensor a = c.in(0), b = c.in(1);
  Tensor x = c.out(0), rest = c.out(1), ranks = c.out(2), values = c.out(3);
  rest.zero_();
  if (driver == "gelsy" && a.numel() > 0 && b.numel() > 0) {
    const auto batch = at::DimVector(x.sizes().slice(0, x.dim() - 2));
    const auto flat = [&](const Tensor& t) {
      at::DimVector sizes(batch);
      sizes.append({t.size(-2), t.size(-1)});
      return t.expand(sizes).reshape({-1, t.size(-2), t.size(-1)});
    };
    const auto [solution, rank] = AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(
        a.scalar_type(), "gelsy", [&] { return complete_orthogonal<scalar_t>(flat(a), flat(b), rcond); });
    c.set_out(0, solution.reshape(x.sizes()));
    // A matrix that meets several right-hand sides has one rank.
    Tensor found = rank.view(batch);
    for (int64_t d = 0; d < ranks.dim(); ++d)
      if (ranks.size(d) == 1) found = found.narrow(d, 0, 1);
    ranks.copy_(found);
    return;
  }
  const auto [solution, residuals, rank, singular] = at::linalg_lstsq(a, b, rcond, driver);
  c.set_out(0, solution);
  if (rest.numel() == residuals.numel()) rest.copy_(residuals);
  if (ranks.numel() > 0) ranks.copy_(rank);
  if (values.numel() > 0) values.copy_(singular);
}

SIM_OP(LeastSquares).costly().inputs(3).outputs(4).dtypes(kAllTypes).attrs({"driver:str"}).run(least_squares);

}  // namespace
}  // namespace acl_sim
