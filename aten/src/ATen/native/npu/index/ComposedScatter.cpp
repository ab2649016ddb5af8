// Scattering with reductions that no card has at once.

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/native/npu/frame/inference/Dtype.h>

#include <limits>
#include <optional>
#include <tuple>

namespace at::native::npu::composed {
namespace {

// A dtype that CANN's operators of maxima take and that holds the values, if there is one.
std::optional<ScalarType> dtype_of_extremes(ScalarType type) {
  switch (type) {
    case kFloat:
    case kHalf:
    case kInt:
    case kChar:
    case kByte:
      return type;
    case kBFloat16:
      return kFloat;
    case kShort:
      return kInt;
    case kBool:
      return kByte;
    default:
      return std::nullopt;
  }
}

// Where the elements that are indexed along `dim` lie in the whole of `self`, in order.
Tensor flat_places(const Tensor& self, int64_t dim, const Tensor& index) {
  Tensor place = index.to(kLong);
  int64_t stride = 1;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    DimVector shape(index.dim(), 1);
    shape[d] = index.size(d);
    place = d == dim ? place - index + index * stride
                     : place + at::arange(index.size(d), index.options()).reshape(shape) * stride;
    stride *= self.size(d);
  }
  return place.reshape({-1});
}

// The largest value for each place, or the least one, by order: of the values for one place the last one is put there.
// The others go to a place more, which is cut off.
Tensor extremes_by_order(bool most, const Tensor& self, const Tensor& places, const Tensor& values) {
  const int64_t n = values.numel();
  const Tensor by_value = std::get<1>(at::sort(values, /*stable=*/true, 0, /*descending=*/!most));
  const auto [place, within] = at::sort(places.index_select(0, by_value), /*stable=*/true, 0, /*descending=*/false);
  const Tensor value = values.index_select(0, by_value.index_select(0, within));
  const Tensor ends =
      at::cat({place.narrow(0, 1, n - 1).ne(place.narrow(0, 0, n - 1)), at::ones({1}, place.options().dtype(kBool))});
  const Tensor room = at::cat({self, self.narrow(0, 0, 1)});
  const Tensor found = room.scatter(0, at::where(ends, place, self.numel()), value).narrow(0, 0, self.numel());
  return most ? at::maximum(self, found) : at::minimum(self, found);
}

// ScatterMax or ScatterMin of single elements; a NaN stays one.
Tensor extremes(bool most, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  const std::optional<ScalarType> known = dtype_of_extremes(self.scalar_type());
  const ScalarType dtype = known.value_or(self.scalar_type());
  // An index out of bounds is found here, before it becomes the place of another element.
  at::gather(self, dim, index);
  const Tensor places = flat_places(self, dim, index);
  const Tensor values = src.to(dtype).reshape({-1});
  Tensor result = self.to(dtype).reshape({-1}).clone();
  if (known.has_value()) {
    OpCommand cmd;
    cmd.Name(most ? "ScatterMax" : "ScatterMin").Input(result).Input(places).Input(values).Output(result).Run();
  } else {
    result = extremes_by_order(most, result, places, values);
  }
  Tensor given = result;
  if (isFloatingType(dtype)) {
    const Tensor none = at::zeros_like(result);
    const Tensor unknown = none.index_add(0, places, values.isnan().to(dtype)) + self.reshape({-1}).isnan().to(dtype);
    given = at::where(unknown.gt(0), at::full_like(result, std::numeric_limits<double>::quiet_NaN()), result);
  }
  return given.reshape(self.sizes()).to(self.scalar_type());
}

// What changes nothing in a reduction.
Tensor neutral(const Tensor& self, int64_t dim, const Tensor& index, std::string_view reduce) {
  if (reduce == "sum" || reduce == "mean") return self.scatter(dim, index, 0);
  if (reduce == "prod") return self.scatter(dim, index, 1);
  const bool most = reduce == "amax";
  if (self.is_floating_point()) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return self.scatter(dim, index, most ? -kInfinity : kInfinity);
  }
  if (self.scalar_type() == kBool) return self.scatter(dim, index, !most);
  Scalar bound;
  AT_DISPATCH_INTEGRAL_TYPES(self.scalar_type(), "scatter_reduce", [&] {
    bound = most ? std::numeric_limits<scalar_t>::min() : std::numeric_limits<scalar_t>::max();
  });
  return self.scatter(dim, index, bound);
}

}  // namespace

Tensor scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                      bool include_self) {
  if (index.numel() == 0) return self.clone();
  if (self.dim() == 0) {
    return composed::scatter_reduce(self.reshape(1), 0, index.reshape({-1}), src.reshape({-1}), reduce, include_self)
        .reshape({});
  }
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  const bool extreme = reduce == "amax" || reduce == "amin";
  const ScalarType compute = extreme ? self.scalar_type() : wide_type(self.scalar_type());
  Tensor values = src.to(compute);
  for (int64_t i = 0; i < index.dim(); ++i) values = values.narrow(i, 0, index.size(i));
  const Tensor base = include_self ? self.to(compute) : neutral(self.to(compute), d, index, reduce);
  if (extreme) return extremes(reduce == "amax", base, d, index, values.contiguous());
  if (reduce == "prod") return base.scatter(d, index, values, "multiply");
  const Tensor sum = base.scatter_add(d, index, values);
  if (reduce == "sum") return sum;
  const Tensor before = include_self ? at::ones_like(sum) : at::zeros_like(sum);
  const Tensor count = before.scatter_add(d, index, at::ones_like(values)).clamp_min(1);
  return isFloatingType(compute) || isComplexType(compute) ? sum / count : at::div(sum, count, "floor");
}

Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                    bool include_self) {
  if (self.dim() == 0) {
    const Tensor result =
        composed::scatter_reduce(self.reshape(1), 0, index.reshape({-1}), source.reshape({-1}), reduce, include_self);
    return result.reshape({});
  }
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  DimVector shape(self.dim(), 1);
  shape[d] = index.numel();
  const Tensor rows = source.dim() == 0 ? source.reshape(shape) : source;
  return composed::scatter_reduce(self, d, index.reshape(shape).expand_as(rows).to(kLong), rows, reduce, include_self);
}

}  // namespace at::native::npu::composed
