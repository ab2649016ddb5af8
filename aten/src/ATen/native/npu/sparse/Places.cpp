// Indices as numbers, and what is computed of them; everything but write_out leaves the host running ahead.

#include <ATen/native/npu/sparse/Sparse.h>

#include <ATen/ATen.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/native/npu/frame/inference/Composed.h>

#include <numeric>

namespace at::native {
// Upstream's, in none of the headers that it ships.
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
}  // namespace at::native

namespace at::native::npu::sparse {

Tensor places_along(const Tensor& indices, IntArrayRef sizes, IntArrayRef dims) {
  if (dims.empty()) return at::zeros({indices.size(1)}, indices.options());
  Tensor place = indices.select(0, dims[0]);
  for (const int64_t d : dims.slice(1)) place = place.mul(sizes[d]).add(indices.select(0, d));
  return place.contiguous();
}

Tensor places(const Tensor& indices, IntArrayRef sizes) {
  DimVector dims(indices.size(0));
  std::iota(dims.begin(), dims.end(), 0);
  return places_along(indices, sizes, dims);
}

Tensor rows_of(const Tensor& bounds, int64_t count) {
  DimVector sizes(bounds.sizes());
  sizes.back() = count;
  const Tensor at = at::arange(count, bounds.options()).expand(sizes).contiguous();
  return at::searchsorted(bounds.contiguous(), at, /*out_int32=*/bounds.scalar_type() == kInt, /*right=*/true).sub(1);
}

Tensor bounds_of(const Tensor& sorted_rows, int64_t count) {
  const bool narrow = sorted_rows.scalar_type() == kInt;
  if (sorted_rows.numel() == 0) return at::zeros({count + 1}, sorted_rows.options());
  return at::searchsorted(sorted_rows.contiguous(), at::arange(count + 1, sorted_rows.options()), narrow);
}

Tensor sum_by_place(const Tensor& values, const Tensor& place, int64_t count) {
  const ScalarType type = values.scalar_type();
  const bool small = type == kBool || type == kChar || type == kByte || type == kShort;
  const Tensor summed = values.to(small ? kInt : wide_type(type));
  DimVector sizes(values.sizes());
  sizes[0] = count;
  const Tensor result = at::zeros(sizes, summed.options());
  if (summed.numel() > 0) result.index_add_(0, place, summed);
  return result.to(type);
}

Found find(const Tensor& sorted, const Tensor& wanted) {
  const Tensor at = at::searchsorted(sorted.contiguous(), wanted.contiguous()).clamp_max(sorted.numel() - 1);
  return {at, sorted.index_select(0, at).eq(wanted)};
}

Tensor values_at(const Tensor& values, const Found& found) {
  DimVector sizes(values.dim(), 1);
  sizes[0] = found.there.numel();
  return values.index_select(0, found.at).masked_fill(found.there.view(sizes).logical_not(), 0);
}

Ranges write_out(const Tensor& start, const Tensor& count) {
  const Tensor end = count.cumsum(0);
  const int64_t total = end.numel() == 0 ? 0 : end.select(0, -1).item<int64_t>();
  const Tensor place = at::arange(total, start.options());
  const Tensor which = at::searchsorted(end, place, /*out_int32=*/false, /*right=*/true);
  if (total == 0) return {which, place};
  const Tensor shift = start.sub(end).add(count);
  return {which, place.add(shift.index_select(0, which))};
}

Tensor make_coo(IntArrayRef sizes, const Tensor& indices, const Tensor& values, bool coalesced) {
  // Upstream calls what has one element or none coalesced, unless it is told otherwise.
  const std::optional<bool> told = coalesced ? std::optional<bool>(true) : std::nullopt;
  return at::_sparse_coo_tensor_with_dims_and_tensors(indices.size(0), values.dim() - 1, sizes, indices, values,
                                                      values.options().layout(kSparse), told);
}

void put_coo(const Tensor& result, IntArrayRef sizes, const Tensor& indices, const Tensor& values, bool coalesced) {
  auto* impl = at::sparse::get_sparse_impl(result);
  impl->raw_resize_(indices.size(0), values.dim() - 1, sizes);
  impl->set_indices_and_values_unsafe(indices, values.to(result.scalar_type()));
  if (coalesced) impl->set_coalesced(true);
}

void check_devices(const char* name, at::ArrayRef<std::reference_wrapper<const Tensor>> tensors) {
  const Device device = tensors[0].get().device();
  for (const Tensor& t : tensors) {
    if (!t.device().is_cpu() || t.dim() > 0 || t.is_sparse()) {
      TORCH_CHECK(t.device() == device,
                  "Expected all tensors to be on the same device, but found at least two devices, ", device, " and ",
                  t.device(), "! (when checking arguments of ", name, ")");
    }
  }
}

}  // namespace at::native::npu::sparse

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &npu::sparse::places)
}  // namespace at::native
