// Reductions and index operators of which a card has a narrower form, or none.

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/inference/Composed.h>

namespace at::native::npu::composed {

Tensor vector_norm(const Tensor& self, const Scalar& ord, at::OptionalIntArrayRef dim, bool keepdim, ScalarType dtype) {
  const double p = ord.toDouble();
  const Tensor powers = self.abs().to(wide_type(dtype)).pow(p);
  const Tensor sums = dim.has_value() && !dim->empty() ? powers.sum(*dim, keepdim) : powers.sum();
  const Tensor norm = sums.pow(1 / p);
  const bool whole = !dim.has_value() || dim->empty();
  return whole && keepdim ? norm.reshape(DimVector(self.dim(), 1)) : norm;
}

Tensor renorm(const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm) {
  const Tensor x = wide(self, self.scalar_type());
  DimVector others;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != at::maybe_wrap_dim(dim, self.dim())) others.push_back(d);
  }
  const Tensor norm = at::linalg_vector_norm(x, p, others, /*keepdim=*/true);
  const Tensor factor = at::reciprocal(norm + 1e-7) * maxnorm;
  return x * at::where(norm.gt(maxnorm), factor, at::ones_like(factor));
}

// Rows are replaced; other dimensions become rows.
Tensor index_copy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  const Tensor rows = self.transpose(0, d).contiguous();
  const Tensor updates = source.dim() == 0 ? source.reshape(1) : source.transpose(0, d);
  return rows.index_copy(0, index, updates).transpose(0, d);
}

// Few are compared one by one; many are looked up.
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert) {
  const Tensor tests = test_elements.reshape({-1});
  constexpr int64_t kFew = 64;
  Tensor found;
  if (tests.numel() <= kFew) {
    found = elements.unsqueeze(-1).eq(tests).any(-1);
  } else {
    const ScalarType common = at::result_type(elements, tests);
    const Tensor sorted = std::get<0>(tests.to(common).sort()), wanted = elements.to(common).contiguous();
    const Tensor place = at::searchsorted(sorted, wanted).clamp_max(tests.numel() - 1);
    found = sorted.index_select(0, place.reshape({-1})).reshape(elements.sizes()).eq(wanted);
  }
  return invert ? found.logical_not() : found;
}

namespace {

Tensor counted_from_the_front(const Tensor& index, int64_t size) {
  const Tensor flat = index.reshape({-1});
  return at::where(flat.lt(0), flat + size, flat);
}

}  // namespace

Tensor take(const Tensor& self, const Tensor& index) {
  const Tensor place = counted_from_the_front(index, self.numel());
  return self.reshape({-1}).index_select(0, place).reshape(index.sizes());
}

Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  const Tensor place = counted_from_the_front(index, self.numel());
  const c10::List<std::optional<Tensor>> indices({std::optional<Tensor>(place.to(kLong))});
  return self.reshape({-1}).index_put(indices, source.reshape({-1}), accumulate).reshape(self.sizes());
}

Tensor unfold_backward(const Tensor& grad_in, IntArrayRef input_sizes, int64_t dim, int64_t size, int64_t step) {
  const auto options = grad_in.options().dtype(kLong);
  if (input_sizes.empty()) return grad_in.reshape({-1}).select(0, 0).clone();
  const Tensor place = at::arange(input_sizes[dim], options).unfold(0, size, step).reshape({-1});
  const Tensor rows = grad_in.movedim(-1, dim + 1).flatten(dim, dim + 1);
  return at::zeros(input_sizes, grad_in.options()).index_add(dim, place, rows);
}

// The lower one of two in the middle. Sorting puts NaNs last.
Tensor median(const Tensor& self, bool ignore_nan) {
  const Tensor sorted = std::get<0>(self.reshape({-1}).sort());
  const int64_t n = sorted.numel();
  if (!self.is_floating_point()) return sorted.select(0, (n - 1) / 2).clone();
  if (ignore_nan) {
    const Tensor count = sorted.isnan().logical_not().sum();
    const Tensor place = at::div(count - 1, 2, "trunc").clamp_min(0);
    return sorted.index_select(0, place.reshape({1})).reshape({});
  }
  const Tensor last = sorted.select(0, n - 1);
  return at::where(last.isnan(), last, sorted.select(0, (n - 1) / 2));
}

Tensor histc(const Tensor& self, int64_t bins, double min, double max) {
  const Tensor x = wide(self.reshape({-1}), self.scalar_type());
  Tensor least = at::full({}, min, x.options()), most = at::full({}, max, x.options());
  if (min == max) {
    std::tie(least, most) = at::aminmax(x);
    const Tensor equal = least.eq(most);
    least = at::where(equal, least - 1, least);
    most = at::where(equal, most + 1, most);
  }
  const Tensor inside = at::logical_and(x.ge(least), x.le(most));
  const Tensor place = ((x - least) * bins / (most - least)).to(kLong).clamp(0, bins - 1);
  const Tensor counts = at::zeros({bins}, x.options());
  return counts.scatter_add(0, at::where(inside, place, at::zeros_like(place)), inside.to(x.scalar_type()))
      .to(self.scalar_type());
}

// Each takes in what stands one, two, four and so on before it.
Tensor logcumsumexp(const Tensor& self, int64_t dim) {
  const Tensor x = wide(self, self.scalar_type());
  if (self.dim() == 0) return self.clone();
  Tensor y = x;
  for (int64_t shift = 1; shift < x.size(dim); shift *= 2) {
    const int64_t rest = x.size(dim) - shift;
    y = at::cat({y.narrow(dim, 0, shift), at::logaddexp(y.narrow(dim, shift, rest), y.narrow(dim, 0, rest))}, dim);
  }
  return y.to(self.scalar_type());
}

}  // namespace at::native::npu::composed
