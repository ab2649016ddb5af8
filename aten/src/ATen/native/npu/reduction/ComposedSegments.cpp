// Reductions of segments, by comparing each place along the axis with the bounds of each segment.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>

#include <limits>

namespace at::native::npu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Data as (outer, 1, places, inner), and which place belongs to which segment as (outer, segments, places, 1).
struct Segments {
  Tensor data, inside, lengths;  // lengths: (outer, segments, 1)
  int64_t outer, inner;

  // Results of the segments, (outer, segments, inner), as the operator has them.
  Tensor shaped(const Tensor& results, const Tensor& given, int64_t axis) const {
    DimVector sizes(given.sizes());
    sizes[axis] = lengths.size(1);
    return results.reshape(sizes);
  }
  // A value of each segment for each of its places.
  Tensor spread(const Tensor& of_segments) const { return of_segments.reshape({outer, lengths.size(1), 1, inner}); }
};

bool given(const AtenArguments& a, const char* name) { return a[name].isTensor() && a.tensor(name).defined(); }

Segments segments_of(const AtenArguments& a, const char* ir, bool checked) {
  const Tensor& data = a.tensor("data");
  const int64_t axis = at::maybe_wrap_dim(a["axis"].toInt(), data.dim()), places = data.size(axis);
  const auto product = [&](int64_t first, int64_t last) {
    return c10::multiply_integers(data.sizes().slice(first, last - first));
  };
  Segments s;
  s.outer = product(0, axis), s.inner = product(axis + 1, data.dim());
  const auto rows = [&](const Tensor& t) { return t.to(kLong).reshape({s.outer, t.size(-1), 1}); };
  Tensor first, last;
  if (given(a, "lengths")) {
    const Tensor lengths = rows(a.tensor("lengths"));
    if (checked && lengths.numel() > 0) {
      TORCH_CHECK(lengths.min().item<int64_t>() >= 0, "segment_reduce(): lengths contains negative value!");
      TORCH_CHECK(lengths.sum(1).eq(places).all().item<bool>(), "segment_reduce(): Expected all rows of lengths along ",
                  "axis to sum to data.size(lengths.dim()-1) when !unsafe.");
    }
    last = lengths.cumsum(1);
    first = last - lengths;
  } else {
    TORCH_CHECK(given(a, "offsets"), "segment_reduce(): Either lengths or offsets must be defined");
    const Tensor bounds = rows(a.tensor("offsets"));
    first = bounds.narrow(1, 0, bounds.size(1) - 1);
    last = bounds.narrow(1, 1, bounds.size(1) - 1);
  }
  s.lengths = last - first;
  // Each segment looks at each place: of many the CPU makes less work.
  constexpr int64_t kMost = int64_t{1} << 22;
  if (s.lengths.numel() * places * s.inner > kMost) throw MissingOperator(ir);
  const Tensor place = at::arange(places, first.options());
  s.inside = place.ge(first).logical_and(place.lt(last)).unsqueeze(-1);
  s.data = wide(data, data.scalar_type()).reshape({s.outer, 1, places, s.inner});
  return s;
}

Tensor only(const Segments& s, double otherwise) {
  return at::where(s.inside, s.data, at::full({}, otherwise, s.data.options()));
}

}  // namespace

std::vector<Tensor> composed_segment_reduce(const AtenArguments& a) {
  const Tensor& data = a.tensor("data");
  const std::string reduce = a["reduce"].toStringRef();
  const Segments s = segments_of(a, "SegmentReduce", !a["unsafe"].toBool());
  const std::optional<Scalar> initial =
      a["initial"].isNone() ? std::nullopt : std::optional<Scalar>(a["initial"].toScalar());
  const auto begin = [&](double otherwise) { return initial.has_value() ? initial->toDouble() : otherwise; };
  const auto of = [&](double value) { return at::full({}, value, s.data.options()); };
  Tensor y;
  if (data.size(at::maybe_wrap_dim(a["axis"].toInt(), data.dim())) == 0) {
    const double nothing = reduce == "prod"                      ? 1
                           : reduce == "max" || reduce == "amax" ? -kInfinity
                           : reduce == "min" || reduce == "amin" ? kInfinity
                           : reduce == "mean"                    ? kNan
                                                                 : 0;
    y = at::full({s.outer, s.lengths.size(1), s.inner}, begin(nothing), s.data.options());
  } else if (reduce == "max" || reduce == "amax") {
    y = at::maximum(only(s, -kInfinity).amax(2), of(begin(-kInfinity)));
  } else if (reduce == "min" || reduce == "amin") {
    y = at::minimum(only(s, kInfinity).amin(2), of(begin(kInfinity)));
  } else if (reduce == "prod") {
    y = only(s, 1).prod(2) * begin(1);
  } else {
    y = only(s, 0).sum(2) + begin(0);
    if (reduce == "mean") {
      const Tensor mean = y / s.lengths.clamp_min(1);
      y = at::where(s.lengths.gt(0), mean, initial.has_value() ? y : at::full_like(y, kNan));
    }
  }
  return {s.shaped(y, data, at::maybe_wrap_dim(a["axis"].toInt(), data.dim()))};
}

std::vector<Tensor> composed_segment_reduce_backward(const AtenArguments& a) {
  const Tensor& data = a.tensor("data");
  const std::string reduce = a["reduce"].toStringRef();
  const Segments s = segments_of(a, "SegmentReduceGrad", /*checked=*/false);
  const auto of_segments = [&](const char* name) { return s.spread(wide(a.tensor(name), data.scalar_type())); };
  const Tensor grad = of_segments("grad"), none = at::zeros({}, s.data.options());
  Tensor slope;
  if (reduce == "sum") {
    slope = at::where(s.inside, grad, none);
  } else if (reduce == "mean") {
    slope = at::where(s.inside, grad / s.lengths.unsqueeze(-1).clamp_min(1), none);
  } else if (reduce == "prod") {
    // The product of the others: where a factor is zero or no number, of those that are neither, and of such ones.
    const Tensor zero = s.data.eq(0), unknown = s.data.ne(s.data), special = zero.logical_or(unknown);
    const double initial = a["initial"].isNone() ? 1 : a["initial"].toScalar().toDouble();
    const auto count = [&](const Tensor& flags) {
      return s.inside.logical_and(flags).to(s.data.scalar_type()).sum(2, /*keepdim=*/true);
    };
    const Tensor rest = at::where(special, at::ones_like(s.data), only(s, 1)).prod(2, /*keepdim=*/true) * initial;
    const Tensor zeros = count(zero) - zero.to(s.data.scalar_type());
    const Tensor unknowns = count(unknown) - unknown.to(s.data.scalar_type());
    const Tensor others =
        at::where(unknowns.gt(0), at::full({}, kNan, s.data.options()), at::where(zeros.gt(0), none, rest));
    slope = grad * at::where(special, others, of_segments("output") / s.data);
    slope = at::where(s.inside, slope, none);
  } else {
    const Tensor chosen = s.inside.logical_and(s.data.eq(of_segments("output")).logical_or(s.data.ne(s.data)));
    const Tensor count = chosen.to(s.data.scalar_type()).sum(2, /*keepdim=*/true).clamp_min(1);
    slope = at::where(chosen, grad / count, none);
  }
  return {slope.sum(1).reshape(data.sizes())};
}

}  // namespace at::native::npu
