// Products of a sparse matrix, stored by rows or by columns, with a dense one, and products at its places alone.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "ops/index/index_range.h"
#include "ops/multiversion.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

// Products that are worth a thread.
constexpr int64_t kGrain = 1 << 14;

// The compiler makes its versions of functions, not of templates.
#define SIM_CSR_KERNELS(T, I)                                                                                       \
  /* to += the sum of count rows of the dense matrix, each by its factor. */                                        \
  SIM_MULTIVERSION void gather_rows(const T* factors, const I* rows, int64_t count, const T* dense, int64_t stride, \
                                    int64_t n, T* __restrict to) {                                                  \
    for (int64_t p = 0; p < count; ++p) {                                                                           \
      const T factor = factors[p];                                                                                  \
      const T* __restrict from = dense + static_cast<int64_t>(rows[p]) * stride;                                    \
      for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];                                                    \
    }                                                                                                               \
  }                                                                                                                 \
  /* Adds a row, by count factors, to rows of the result. */                                                        \
  SIM_MULTIVERSION void scatter_row(const T* factors, const I* rows, int64_t count, const T* __restrict from,       \
                                    int64_t stride, int64_t n, T* out) {                                            \
    for (int64_t p = 0; p < count; ++p) {                                                                           \
      const T factor = factors[p];                                                                                  \
      T* __restrict to = out + static_cast<int64_t>(rows[p]) * stride;                                              \
      for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];                                                    \
    }                                                                                                               \
  }                                                                                                                 \
  /* The inner products of a row with count rows of a matrix. */                                                    \
  SIM_MULTIVERSION void dot_rows(const T* row, const T* matrix, const I* rows, int64_t count, int64_t n, T* to) {   \
    constexpr int64_t kLanes = 16;                                                                                  \
    for (int64_t p = 0; p < count; ++p) {                                                                           \
      const T* other = matrix + static_cast<int64_t>(rows[p]) * n;                                                  \
      T parts[kLanes] = {};                                                                                         \
      int64_t i = 0;                                                                                                \
      for (; i + kLanes <= n; i += kLanes)                                                                          \
        for (int64_t lane = 0; lane < kLanes; ++lane) parts[lane] += row[i + lane] * other[i + lane];               \
      T sum = 0;                                                                                                    \
      for (; i < n; ++i) sum += row[i] * other[i];                                                                  \
      for (const T part : parts) sum += part;                                                                       \
      to[p] = sum;                                                                                                  \
    }                                                                                                               \
  }
SIM_CSR_KERNELS(float, int32_t)
SIM_CSR_KERNELS(float, int64_t)
SIM_CSR_KERNELS(double, int32_t)
SIM_CSR_KERNELS(double, int64_t)
#undef SIM_CSR_KERNELS

// A compressed matrix. Its lines are rows, or columns where it is stored by those.
template <class I>
struct Matrix {
  const I *bounds, *places;
  int64_t lines, elements;

  Matrix(const Tensor& line_bounds, const Tensor& line_places, int64_t other_size)
      : bounds(line_bounds.const_data_ptr<I>()),
        places(line_places.const_data_ptr<I>()),
        lines(line_bounds.numel() - 1),
        elements(line_places.numel()) {
    check_offsets(line_bounds, elements, "row end");
    check_range(line_places, 0, other_size - 1, "index of a sparse matrix");
  }

  // Calls body(line) for all lines. Threads have as many elements each, however they are distributed.
  template <class Body>
  void for_lines(int64_t width, const Body& body) const {
    const int64_t share = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width));
    at::parallel_for(0, elements, share, [&](int64_t begin, int64_t end) {
      // A line belongs to whom its first element does.
      const I *first = std::lower_bound(bounds, bounds + lines, static_cast<I>(begin)),
              *last = std::lower_bound(bounds, bounds + lines, static_cast<I>(end));
      for (const I* at = first; at < last; ++at) body(at - bounds);
    });
  }
};

template <class T, class I>
void multiply(const Tensor& bounds, const Tensor& places, const Tensor& values, const Tensor& dense, bool by_column,
              const Tensor& result) {
  const int64_t n = dense.size(1);
  const Matrix<I> m(bounds, places, by_column ? result.size(0) : dense.size(0));
  const T *factors = values.const_data_ptr<T>(), *from = dense.const_data_ptr<T>();
  T* to = result.mutable_data_ptr<T>();
  if (!by_column) {
    m.for_lines(n, [&](int64_t i) {
      const int64_t first = m.bounds[i], count = m.bounds[i + 1] - first;
      gather_rows(factors + first, m.places + first, count, from, n, n, to + i * n);
    });
    return;
  }
  // Columns meet in the rows of the result, so each thread has some of its columns.
  const int64_t share = std::max<int64_t>(16, kGrain / std::max<int64_t>(1, m.elements));
  at::parallel_for(0, n, share, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < m.lines; ++i) {
      const int64_t first = m.bounds[i], count = m.bounds[i + 1] - first;
      scatter_row(factors + first, m.places + first, count, from + i * n + begin, n, end - begin, to + begin);
    }
  });
}

template <class T, class I>
void sample(const Tensor& bounds, const Tensor& places, const Tensor& left, const Tensor& right, const Tensor& result) {
  const int64_t n = left.size(1);
  const Matrix<I> m(bounds, places, right.size(0));
  const T *a = left.const_data_ptr<T>(), *b = right.const_data_ptr<T>();
  T* to = result.mutable_data_ptr<T>();
  m.for_lines(n, [&](int64_t i) {
    const int64_t first = m.bounds[i], count = m.bounds[i + 1] - first;
    dot_rows(a + i * n, b, m.places + first, count, n, to + first);
  });
}

// Calls body<T, I> for fp32 or fp64 and the indices' dtype.
#define SIM_CSR_CALL(body, type, indices, ...)                                                       \
  if ((type) == at::kDouble) {                                                                       \
    (indices) == at::kInt ? body<double, int32_t>(__VA_ARGS__) : body<double, int64_t>(__VA_ARGS__); \
  } else {                                                                                           \
    (indices) == at::kInt ? body<float, int32_t>(__VA_ARGS__) : body<float, int64_t>(__VA_ARGS__);   \
  }

// bounds of the rows, columns, values, dense matrix -> product, of the dtype in which halves are summed. With
// by_column: bounds of the columns, rows.
void csr_matmul(OpContext& c) {
  const Tensor bounds = c.in(0), places = c.in(1), values = widen(c.in(2)), dense = widen(c.in(3)), result = c.out(0);
  result.zero_();
  SIM_CSR_CALL(multiply, result.scalar_type(), places.scalar_type(), bounds, places, values, dense,
               c.attrs().boolean("by_column", false), result);
}
constexpr DtypeSet kIndexTypes = dtype_bit(ACL_INT32) | dtype_bit(ACL_INT64);
SIM_OP(CsrMatMul)
    .inputs(4)
    .outputs(1)
    .dtypes({kIndexTypes, kIndexTypes, kFloatTypes, kFloatTypes})
    .attrs({"by_column:bool"})
    .costly()
    .run(csr_matmul);

// bounds of the rows, columns, left matrix, transposed right matrix -> the elements of their product at those places
void csr_sampled_matmul(OpContext& c) {
  const Tensor bounds = c.in(0), places = c.in(1), left = widen(c.in(2)), right = widen(c.in(3)), result = c.out(0);
  SIM_CSR_CALL(sample, result.scalar_type(), places.scalar_type(), bounds, places, left, right, result);
}
SIM_OP(CsrSampledMatMul)
    .inputs(4)
    .outputs(1)
    .dtypes({kIndexTypes, kIndexTypes, kFloatTypes, kFloatTypes})
    .costly()
    .run(csr_sampled_matmul);
#undef SIM_CSR_CALL

}  // namespace
}  // namespace acl_sim
