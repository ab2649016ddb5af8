// COO tensors: coalescing, sums and products of two, masks, selection. What upstream does the same way on every device
// is in SparseRegistration.cpp.

#include <ATen/native/npu/sparse/Sparse.h>
#include <ATen/native/npu/sparse/SparseKernels.h>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>

namespace at::native {
// Upstream's, for any device, and in none of its headers.
TORCH_API Tensor& _mul_dense_sparse_out(const Tensor& dense, const Tensor& sparse, Tensor& result);
TORCH_API Tensor& _mul_sparse_sparse_zero_dim_out(const Tensor& zero_dim, const Tensor& other, Tensor& result);
}  // namespace at::native

namespace at::native::npu::sparse {
namespace {

IntArrayRef sparse_sizes(const Tensor& t) { return t.sizes().slice(0, t.sparse_dim()); }

void check_result(const char* name, ScalarType common, const Tensor& result) {
  TORCH_CHECK(canCast(common, result.scalar_type()), "Can't convert result type ", common, " to output ",
              result.scalar_type(), " in ", name, " operation");
}

Tensor& add_to_dense(const Tensor& dense, const Tensor& other, const Scalar& alpha, Tensor& result) {
  TORCH_CHECK(!result.is_sparse(), "add: expected 'out' to be dense where 'self' is");
  TORCH_CHECK(dense.sizes().equals(other.sizes()), "add: expected 'self' and 'other' to have same size, but self has ",
              "size ", dense.sizes(), " while other has size ", other.sizes(),
              " (FYI: dense-sparse addition does not currently support broadcasting)");
  const ScalarType common = at::promote_types(dense.scalar_type(), other.scalar_type());
  check_result("add", common, result);
  if (!result.is_same(dense)) result.resize_as_(dense);
  if (other._nnz() == 0 || dense.numel() == 0) {
    if (!result.is_same(dense)) result.copy_(dense);
    return result;
  }
  // Numbers that index_add has no kernel for have the same sums as wider ones.
  const bool small = common == kBool || common == kChar || common == kByte || common == kShort;
  const ScalarType type = small ? kInt : common;
  Tensor values = other._values().to(type);
  if (!alpha.equal(1)) values = values.mul(alpha);
  DimVector rows{1};
  for (const int64_t size : sparse_sizes(other)) rows[0] *= size;
  rows.append(dense.sizes().begin() + other.sparse_dim(), dense.sizes().end());
  const bool in_place = result.is_contiguous() && result.scalar_type() == type;
  if (in_place && !result.is_same(dense)) result.copy_(dense);
  const Tensor sum = in_place ? result : dense.to(type, /*non_blocking=*/false, /*copy=*/true).contiguous();
  sum.view(rows).index_add_(0, places(other._indices(), sparse_sizes(other)), values);
  if (!in_place) result.copy_(small ? sum.to(common) : sum);
  return result;
}

struct Shared {
  Tensor indices, left, right;
};
// What two tensors have in common: indices, and both values at each. Sizes may differ in dense dimensions.
Shared shared(const Tensor& a, const Tensor& b) {
  const Tensor left = a.coalesce(), right = b.coalesce();
  const auto at = [](const Tensor& t) { return places(t._indices(), sparse_sizes(t)); };
  const Found found = find(at(right), at(left));
  const Tensor chosen = found.there.nonzero().view({-1});
  return {left._indices().index_select(1, chosen), left._values().index_select(0, chosen),
          right._values().index_select(0, found.at.index_select(0, chosen))};
}

void check_alike(const char* name, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == b.dim() && a.sparse_dim() == b.sparse_dim() && sparse_sizes(a).equals(sparse_sizes(b)), name,
              "(): expects sparse inputs with equal dimensionality, number of sparse dimensions, and shape of sparse ",
              "dimensions");
}

void check_mask(const char* name, const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.sizes().equals(self.sizes()), name, "(): operands have incompatible sizes; self has size ",
              self.sizes(), " but mask has size ", mask.sizes());
}

void check_mask_dims(const char* name, const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(self.sparse_dim() == mask.sparse_dim(), name,
              "(): the number of sparse dimensions in `self` should match ",
              "that of the `mask`. Got `self.sparse_dim() == ", self.sparse_dim(),
              "` != `mask.sparse_dim() == ", mask.sparse_dim(), "`.");
}

}  // namespace

Tensor coalesce(const Tensor& self) {
  if (self.is_coalesced()) return self;
  const int64_t nnz = self._nnz();
  if (nnz < 2) return self.clone()._coalesced_(true);
  DeviceOf guard(self);
  const Tensor indices = self._indices();
  const auto [place, order] =
      places(indices, sparse_sizes(self)).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor later = place.narrow(0, 1, nnz - 1).ne(place.narrow(0, 0, nnz - 1));
  const Tensor segment = at::cat({at::zeros({1}, place.options()), later.cumsum(0)});
  const int64_t count = segment.select(0, -1).item<int64_t>() + 1;
  // Any element of a segment tells its indices, so it does not matter which one is kept.
  const Tensor chosen = at::empty({count}, order.options()).scatter_(0, segment, order);
  const Tensor segment_of = at::empty_like(order).scatter_(0, order, segment);
  return make_coo(self.sizes(), indices.index_select(1, chosen), sum_by_place(self._values(), segment_of, count), true);
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& result) {
  check_devices("add", {self, other, result});
  DeviceOf guard(result);
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  if (!self.is_sparse()) return add_to_dense(self, other, alpha, result);
  TORCH_CHECK(self.sizes().equals(other.sizes()), "add: expected sizes of 'self' and 'other' to match, but ",
              self.sizes(), " != ", other.sizes());
  const ScalarType common = at::promote_types(self.scalar_type(), other.scalar_type());
  check_result("add", common, result);
  const auto scaled = [&] {
    const Tensor values = other._values().to(common);
    return alpha.equal(1) ? values : values.mul(alpha);
  };
  if (other._nnz() == 0) return result.is_same(self) ? result : result.copy_(self);
  if (self._nnz() == 0) {
    put_coo(result, other.sizes(), other._indices().clone(), scaled().clone(), other.is_coalesced());
    return result;
  }
  TORCH_CHECK(at::sparse::is_same_density(self, other), "add: expected 'self' and 'other' to have same density, but ",
              "'self' has ", self.sparse_dim(), " sparse dimensions while 'other' has ", other.sparse_dim(),
              " sparse dimensions");
  const bool coalesced = self.is_coalesced() && other.is_coalesced();
  Tensor sum = make_coo(self.sizes(), at::cat({self._indices(), other._indices()}, 1),
                        at::cat({self._values().to(common), scaled()}), false);
  // As on the CPU two coalesced ones have a coalesced sum; others grow, which needs no answer from the device.
  if (coalesced || sum._nnz() > sum.numel()) sum = sum.coalesce();
  put_coo(result, self.sizes(), sum._indices(), sum._values(), sum.is_coalesced());
  return result;
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& result) {
  check_devices("mul", {self.is_sparse() ? self : other, self, other, result});
  DeviceOf guard(result);
  if (!other.is_sparse()) return at::native::_mul_dense_sparse_out(other, self, result);
  if (!self.is_sparse()) return at::native::_mul_dense_sparse_out(self, other, result);
  if (other.dim() == 0) return at::native::_mul_sparse_sparse_zero_dim_out(other, self, result);
  if (self.dim() == 0) return at::native::_mul_sparse_sparse_zero_dim_out(self, other, result);
  check_alike("mul", self, other);
  const ScalarType common = at::promote_types(self.scalar_type(), other.scalar_type());
  check_result("mul", common, result);
  const std::vector<int64_t> sizes = at::infer_size(self.sizes(), other.sizes());
  if (self._nnz() == 0 || other._nnz() == 0) {
    DimVector none(sizes.begin() + self.sparse_dim(), sizes.end());
    none.insert(none.begin(), 0);
    put_coo(result, sizes, at::empty({self.sparse_dim(), 0}, self._indices().options()),
            at::empty(none, self._values().options()), true);
    return result;
  }
  const Shared both = shared(self, other);
  put_coo(result, sizes, both.indices, both.left.to(common).mul(both.right.to(common)), true);
  return result;
}

Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  check_devices("sparse_mask", {self, mask});
  DeviceOf guard(self);
  check_mask("sparse_mask", self, mask);
  if (self.is_same(mask)) return self;
  const auto masked = [&](const Tensor& values) {
    return make_coo(mask.sizes(), mask._indices().clone(), values, mask.is_coalesced());
  };
  if (mask.numel() == 0 || mask._nnz() == 0) return mask.clone().to(self.scalar_type());
  const Tensor at = places(mask._indices(), sparse_sizes(mask));
  if (!self.is_sparse()) {
    const Tensor dense = self.layout() == kStrided ? self : self.to_dense();
    DimVector rows{1};
    for (const int64_t size : sparse_sizes(mask)) rows[0] *= size;
    rows.append(dense.sizes().begin() + mask.sparse_dim(), dense.sizes().end());
    return masked(dense.reshape(rows).index_select(0, at));
  }
  if (self._nnz() == 0) return masked(at::zeros_like(mask._values(), self.scalar_type()));
  check_mask_dims("sparse_mask", self, mask);
  const Tensor t = self.coalesce();
  return masked(values_at(t._values(), find(places(t._indices(), sparse_sizes(t)), at)));
}

// The values that are in the mask, and zeros: as often as the mask has the index if matches accumulate.
Tensor sparse_mask_projection(const Tensor& self, const Tensor& mask, bool accumulate_matches) {
  check_devices("_sparse_mask_projection", {self, mask});
  DeviceOf guard(self);
  check_mask("_sparse_mask_projection", self, mask);
  const auto projected = [&](const Tensor& values) {
    return make_coo(self.sizes(), self._indices().clone(), values, self.is_coalesced());
  };
  if (self.numel() == 0 || self._nnz() == 0 || mask._nnz() == 0) return projected(at::zeros_like(self._values()));
  check_mask_dims("_sparse_mask_projection", mask, self);
  const Tensor wanted = places(self._indices(), sparse_sizes(self));
  const Tensor sorted = std::get<0>(places(mask._indices(), sparse_sizes(mask)).sort());
  DimVector sizes(self._values().dim(), 1);
  sizes[0] = self._nnz();
  if (!accumulate_matches) {
    return projected(self._values().masked_fill(find(sorted, wanted).there.logical_not().view(sizes), 0));
  }
  const Tensor matches = at::searchsorted(sorted, wanted, false, /*right=*/true).sub(at::searchsorted(sorted, wanted));
  return projected(self._values().mul(matches.view(sizes).to(self.scalar_type())));
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  check_devices("index_select", {self, index});
  DeviceOf guard(self);
  TORCH_CHECK_INDEX(self.dim() != 0, "index_select() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK_INDEX(index.dim() == 1 && index.dtype() == at::kLong && index.options().layout() == at::kStrided,
                    "index_select() argument index must be 1-D strided (non-sparse) long-tensor.");
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.size(dim), sparse_dim = self.sparse_dim();
  DimVector sizes(self.sizes());
  sizes[dim] = index.numel();
  const Tensor indices = self._indices(), values = self._values();
  if (dim >= sparse_dim) {
    return make_coo(sizes, indices, values.index_select(dim - sparse_dim + 1, index), self.is_coalesced());
  }
  const auto [along, order] = indices.select(0, dim).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor wanted = at::where(index.lt(0), index.add(size), index);
  if (index.numel() > 0) {
    TORCH_CHECK_INDEX(!wanted.lt(0).logical_or(wanted.ge(size)).any().item<bool>(), "index_select(): index contains ",
                      "an index that is out of range for tensor of size ", size, " at dimension ", dim);
  }
  const Tensor start = at::searchsorted(along, wanted);
  const Ranges met = write_out(start, at::searchsorted(along, wanted, false, /*right=*/true).sub(start));
  const Tensor chosen = order.index_select(0, met.at);
  const Tensor result = indices.index_select(1, chosen);
  result.select(0, dim).copy_(met.which);
  return make_coo(sizes, result, values.index_select(0, chosen), false);
}

Tensor sparse_sum_backward(const Tensor& grad, const Tensor& input, IntArrayRef dim) {
  check_devices("_sparse_sum_backward", {input, grad});
  DeviceOf guard(input);
  if ((grad.is_sparse() && grad._nnz() == 0) || grad.numel() == 0) return at::zeros_like(input);
  const Tensor self = input.coalesce();
  const int64_t sparse_dim = self.sparse_dim();
  const auto summed = at::dim_list_to_bitset(dim, self.dim());
  DimVector kept;
  for (int64_t d = 0; d < sparse_dim; ++d) {
    if (!summed[d]) kept.push_back(d);
  }
  const auto spread = [&](Tensor values) {
    for (int64_t d = sparse_dim; d < self.dim(); ++d) {
      if (summed[d]) values = values.unsqueeze(d + 1 - sparse_dim);
    }
    DimVector sizes(self._values().sizes());
    sizes[0] = values.size(0);
    return values.expand(sizes);
  };
  Tensor values;
  if (kept.empty()) {
    TORCH_CHECK(!grad.is_sparse(), "_sparse_sum_backward: expected grad_ Tensor to be dense since all sparse dims are ",
                "summed");
    values = spread(grad.unsqueeze(0)).expand(self._values().sizes());
  } else {
    TORCH_CHECK(grad.is_sparse(), "_sparse_sum_backward: expected grad_ Tensor to be sparse, but got dense");
    const Tensor given = grad.coalesce();
    const Tensor at = places(given._indices(), sparse_sizes(given));
    values = values_at(spread(given._values()), find(at, places_along(self._indices(), self.sizes(), kept)));
  }
  return make_coo(self.sizes(), self._indices().clone(), values.clone(at::MemoryFormat::Contiguous), true);
}

}  // namespace at::native::npu::sparse
