// Order statistics by sorting, where a card selects nothing at once.

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>

namespace at::native::npu::composed {
namespace {

// Values in order with where they were, equal ones as they came. Truth values are sorted as bytes.
std::tuple<Tensor, Tensor> in_order(const Tensor& self, int64_t dim) {
  const Tensor values = self.dim() == 0 ? self.reshape({1}) : self;
  if (self.scalar_type() != kBool) return at::sort(values, /*stable=*/true, dim, /*descending=*/false);
  const auto [sorted, order] = at::sort(values.to(kByte), /*stable=*/true, dim, /*descending=*/false);
  return {sorted.to(kBool), order};
}

// What stands at a place (of size 1 along `dim`) in the order.
std::tuple<Tensor, Tensor> at_place(const Tensor& self, const Tensor& sorted, const Tensor& order, const Tensor& place,
                                    int64_t dim, bool keepdim) {
  const auto pick = [&](const Tensor& t) {
    const Tensor found = t.gather(dim, place);
    return self.dim() == 0 ? found.reshape({}) : keepdim ? found : found.squeeze(dim);
  };
  return {pick(sorted), pick(order)};
}

Tensor places_like(const Tensor& t, int64_t dim, int64_t place) {
  return at::full_like(t.narrow(dim, 0, 1), place, t.options().dtype(kLong), MemoryFormat::Contiguous);
}

}  // namespace

std::tuple<Tensor, Tensor> kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  const auto [sorted, order] = in_order(self, dim);
  return at_place(self, sorted, order, places_like(sorted, dim, k - 1), dim, keepdim);
}

// The lower one of two in the middle. NaNs are last; unless they are left out, the first of them is the median.
std::tuple<Tensor, Tensor> median_along(const Tensor& self, int64_t dim, bool keepdim, bool ignore_nan) {
  const auto [sorted, order] = in_order(self, dim);
  const int64_t n = sorted.size(dim);
  Tensor place = places_like(sorted, dim, (n - 1) / 2);
  if (self.is_floating_point()) {
    const Tensor unknown = sorted.isnan().sum(dim, /*keepdim=*/true), known = n - unknown;
    place = ignore_nan ? at::div(known - 1, 2, "trunc").clamp_min(0) : at::where(unknown.gt(0), known, place);
  }
  return at_place(self, sorted, order, place, dim, keepdim);
}

// The least of the most frequent values, where the last of them was: the first end of a run that is as long as any.
std::tuple<Tensor, Tensor> mode(const Tensor& self, int64_t dim, bool keepdim) {
  const auto [sorted, order] = in_order(self, dim);
  const int64_t n = sorted.size(dim);
  DimVector shape(sorted.dim(), 1);
  shape[dim] = n;
  const Tensor places = at::arange(n, order.options()).reshape(shape);
  const Tensor changes = sorted.narrow(dim, 1, n - 1).ne(sorted.narrow(dim, 0, n - 1));
  const Tensor begins = at::cat({at::ones_like(sorted.narrow(dim, 0, 1), changes.options()), changes}, dim);
  const Tensor start = std::get<0>(at::cummax(at::where(begins, places, at::zeros_like(order)), dim));
  const Tensor length = places - start + 1;
  return at_place(self, sorted, order, length.argmax(dim, /*keepdim=*/true), dim, keepdim);
}

}  // namespace at::native::npu::composed
