// Sums and means of fp32 over one group of adjacent dimensions: Note [Small operators]. Summed in fp64 and rounded
// once.

#include "exec/compilation/compile.h"
#include "ops/multiversion.h"

#include <algorithm>
#include <cstdint>

namespace acl_sim {
namespace {

constexpr int64_t kLanes = 8, kColumns = 64;

// The sum of a row.
SIM_MULTIVERSION double row_sum(const float* x, int64_t n) {
  double s[4 * kLanes] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int64_t k = 0; k < 4 * kLanes; ++k) s[k] += x[i + k];
  }
  for (int64_t k = 0; i < n; ++i, ++k) s[k] += x[i];
  for (int64_t width = 2 * kLanes; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) s[k] += s[k + width];
  }
  return s[0];
}

// The sums of up to kColumns columns of rows that are `stride` apart.
SIM_MULTIVERSION void column_sums(const float* x, int64_t rows, int64_t stride, int64_t columns, double* s) {
  if (columns == kColumns) {
    double t[kColumns] = {};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < kColumns; ++j) t[j] += x[r * stride + j];
    }
    for (int64_t j = 0; j < kColumns; ++j) s[j] = t[j];
    return;
  }
  for (int64_t j = 0; j < columns; ++j) s[j] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) s[j] += x[r * stride + j];
  }
}

// The operand as [outer, reduced, inner].
struct Shape {
  int64_t outer = 1, reduced = 1, inner = 1;
  bool known = false;
};

Shape shape_of(const CompiledOp& op, const void* axes) {
  Shape s;
  const Operand &x = op.inputs[0], &list = op.inputs[1];
  const auto rank = static_cast<int64_t>(x.dims.size());
  uint64_t is_reduced = 0;
  for (int64_t i = 0; i < list.elements; ++i) {
    int64_t axis =
        list.dtype == ACL_INT64 ? static_cast<const int64_t*>(axes)[i] : static_cast<const int32_t*>(axes)[i];
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return s;
    is_reduced |= uint64_t{1} << axis;
  }
  int64_t d = 0;
  while (d < rank && !(is_reduced >> d & 1)) s.outer *= x.dims[d++];
  while (d < rank && ((is_reduced >> d & 1) || x.dims[d] == 1)) s.reduced *= x.dims[d++];
  while (d < rank && (!(is_reduced >> d & 1) || x.dims[d] == 1)) s.inner *= x.dims[d++];
  s.known = d == rank && is_reduced != 0 && s.outer * s.inner == op.outputs[0].elements;
  return s;
}

template <bool kMean>
bool reduce(const CompiledOp& op, void* const* operands) {
  const Shape s = shape_of(op, operands[1]);
  if (!s.known) return false;
  const float* x = static_cast<const float*>(operands[0]);
  float* y = static_cast<float*>(operands[2]);
  // As libtorch: the sum is rounded before it is divided.
  const auto count = static_cast<float>(s.reduced);
  const auto result = [&](double sum) { return kMean ? static_cast<float>(sum) / count : static_cast<float>(sum); };
  for (int64_t o = 0; o < s.outer; ++o, x += s.reduced * s.inner, y += s.inner) {
    if (s.inner == 1) {
      *y = result(row_sum(x, s.reduced));
      continue;
    }
    for (int64_t begin = 0; begin < s.inner; begin += kColumns) {
      double sums[kColumns];
      const int64_t columns = std::min(kColumns, s.inner - begin);
      column_sums(x + begin, s.reduced, s.inner, columns, sums);
      for (int64_t j = 0; j < columns; ++j) y[begin + j] = result(sums[j]);
    }
  }
  return true;
}

template <bool kMean>
SmallFn choose(const CompiledOp& op) {
  const Operand &x = op.inputs[0], &axes = op.inputs[1], &y = op.outputs[0];
  const bool fits = x.dtype == ACL_FLOAT && y.dtype == ACL_FLOAT && !x.absent && !axes.absent && axes.host &&
                    (axes.dtype == ACL_INT64 || axes.dtype == ACL_INT32) && x.elements > 0 && x.dims.size() < 64;
  return fits ? reduce<kMean> : nullptr;
}
SIM_SMALL(ReduceSum, choose<false>);
SIM_SMALL(ReduceMean, choose<true>);

}  // namespace
}  // namespace acl_sim
