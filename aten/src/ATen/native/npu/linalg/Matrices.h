#pragma once
// What the compositions of linear algebra share: shapes, adjoints, systems with triangular matrices.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <c10/util/DimVector.h>

#include <initializer_list>

namespace at::native::npu {

// The batch's sizes, followed by others.
DimVector with_tail(const Tensor& t, std::initializer_list<int64_t> tail);

// The conjugate transpose.
Tensor turned(const Tensor& t);

struct Triangle {
  bool upper;
  bool unit = false;     // ones on the diagonal, whatever the memory holds
  bool adjoint = false;  // the system is that of the conjugate transpose
};

// The solution x of matrix x = b, or of x matrix = b, for matrices of which one triangle is read. Batches are
// broadcast.
Tensor solve_triangular(const Tensor& matrix, const Tensor& b, const Triangle& triangle, bool left = true);

// The least solution of a system that has many or none, by singular values: those below `limit` times the largest count
// as zero, the others are the rank. Residuals are the sums of squares of what is left, by column.
struct LeastSquares {
  Tensor solution, residuals, rank, singular_values;
};
LeastSquares least_squares(const Tensor& matrix, const Tensor& b, double limit);

// A factorisation by columns launches a few operators for each: for more columns than these the CPU is faster, copies
// included.
inline void check_columns(const char* ir, int64_t columns) {
  constexpr int64_t kMost = 64;
  if (columns > kMost) throw MissingOperator(ir);
}

}  // namespace at::native::npu
