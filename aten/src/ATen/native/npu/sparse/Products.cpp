// Products with sparse matrices. A device that has no operator for it gathers rows of the dense operand, scales them,
// and sums them where they belong.

#include <ATen/native/npu/sparse/Sparse.h>

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Composed.h>

namespace at::native::npu::sparse {
namespace {

// How many numbers are gathered at once: a graph's edges times its features need not fit into the device's memory.
constexpr int64_t kMost = int64_t{1} << 26;

// Integers narrower than these have the same sums, modulo their range.
ScalarType summed_type(ScalarType type) {
  return type == kBool || type == kChar || type == kByte || type == kShort ? kInt : wide_type(type);
}

bool floating(const Tensor& t) { return at::isFloatingType(t.scalar_type()); }

bool index_types(const Tensor& bounds, const Tensor& places) {
  return bounds.scalar_type() == places.scalar_type() &&
         (places.scalar_type() == kInt || places.scalar_type() == kLong);
}

}  // namespace

std::optional<Tensor> compressed_product(const Tensor& bounds, const Tensor& places, const Tensor& values, int64_t m,
                                         const Tensor& dense, bool by_column) {
  if (lacks("CsrMatMul") || bounds.dim() != 1 || values.dim() != 1 || !floating(dense) ||
      values.scalar_type() != dense.scalar_type() || !index_types(bounds, places)) {
    return std::nullopt;
  }
  const ScalarType type = wide_type(dense.scalar_type());
  if (values.size(0) == 0 || m == 0 || dense.numel() == 0) {
    return at::zeros({m, dense.size(1)}, dense.options().dtype(type));
  }
  Tensor result = empty_npu({m, dense.size(1)}, type, dense.device());
  OpCommand cmd;
  cmd.Name("CsrMatMul").Input(bounds).Input(places).Input(values).Input(dense).Output(result);
  cmd.Attr("by_column", by_column).Run();
  return result;
}

std::optional<Tensor> sampled_product(const Tensor& bounds, const Tensor& places, const Tensor& left,
                                      const Tensor& right) {
  if (lacks("CsrSampledMatMul") || bounds.dim() != 1 || !floating(left) || left.scalar_type() != right.scalar_type() ||
      !index_types(bounds, places)) {
    return std::nullopt;
  }
  const ScalarType type = wide_type(left.scalar_type());
  if (places.numel() == 0 || left.numel() == 0 || right.numel() == 0) {
    return at::zeros({places.size(0)}, left.options().dtype(type));
  }
  Tensor result = empty_npu({places.size(0)}, type, left.device());
  OpCommand cmd;
  cmd.Name("CsrSampledMatMul").Input(bounds).Input(places).Input(left).Input(right.t()).Output(result).Run();
  return result;
}

Tensor product(const Tensor& rows, const Tensor& columns, const Tensor& values, int64_t m, const Tensor& dense) {
  const bool blocks = values.dim() == 3;
  const int64_t height = blocks ? values.size(1) : 1, width = blocks ? values.size(2) : 1;
  const int64_t n = values.size(0), k = dense.size(1);
  const ScalarType type = summed_type(at::result_type(values, dense));
  const Tensor result = at::zeros({m / height, height, k}, dense.options().dtype(type));
  if (n == 0 || result.numel() == 0 || dense.numel() == 0) return result.reshape({m, k});
  const Tensor wide_values = values.to(type).reshape({n, height, width}), wide_dense = dense.to(type).contiguous();
  const Tensor operand = wide_dense.view({dense.size(0) / width, width * k});
  const int64_t step = std::max<int64_t>(1, kMost / (std::max(width, height) * k));
  for (int64_t first = 0; first < n; first += step) {
    const int64_t count = std::min(step, n - first);
    const auto part = [&](const Tensor& t) { return count == n ? t : t.narrow(0, first, count); };
    const Tensor gathered = operand.index_select(0, part(columns)).view({count, width, k});
    const Tensor scaled = blocks ? part(wide_values).bmm(gathered) : gathered.mul_(part(wide_values));
    result.view({m / height, height * k}).index_add_(0, part(rows), scaled.view({count, height * k}));
  }
  return result.view({m, k});
}

Tensor sparse_product(const Tensor& a, const Tensor& b) {
  const Tensor left = a.coalesce(), right = b.coalesce();
  const Tensor indices = left._indices(), others = right._indices();
  const std::array<int64_t, 2> sizes{a.size(0), b.size(1)};
  // Each element of the left matrix meets the row of the right one that its column names.
  const Tensor bounds = bounds_of(others.select(0, 0), b.size(0));
  const Tensor start = bounds.index_select(0, indices.select(0, 1));
  const Tensor count = bounds.index_select(0, indices.select(0, 1).add(1)).sub(start);
  const Ranges met = write_out(start, count);
  const Tensor values = wide(left._values(), a.scalar_type())
                            .index_select(0, met.which)
                            .mul(wide(right._values(), b.scalar_type()).index_select(0, met.at));
  const Tensor places =
      at::stack({indices.select(0, 0).index_select(0, met.which), others.select(0, 1).index_select(0, met.at)});
  return make_coo(sizes, places, values, false).coalesce().to(at::result_type(a, b));
}

}  // namespace at::native::npu::sparse
