// Resizing of images, lines and volumes by weighted sums of pixels, one dimension after the other; and pooling that
// goes by indices.

#include <ATen/ATen.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/inference/Composed.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <vector>

namespace at::native::npu::composed {
namespace {

// What one pixel of the result is made of: in each tap, an index and a weight for each position of the result.
struct Taps {
  explicit Taps(size_t count, int64_t size)
      : index(count, std::vector<int64_t>(size, 0)), weight(count, std::vector<double>(size, 0)) {}
  std::vector<std::vector<int64_t>> index;
  std::vector<std::vector<double>> weight;
};

double scale_of(int64_t in, int64_t out, bool align_corners, OptionalScale scale) {
  if (align_corners) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  return scale.has_value() && *scale > 0 ? 1 / *scale : static_cast<double>(in) / static_cast<double>(out);
}

double position(double scale, int64_t i, bool align_corners) {
  return align_corners ? scale * static_cast<double>(i) : scale * (static_cast<double>(i) + 0.5) - 0.5;
}

// In the precision that upstream computes in: its last bit decides which pixel is the nearest.
template <class T>
int64_t nearest(int64_t in, int64_t out, OptionalScale given, int64_t i, bool exact) {
  const T scale =
      given.has_value() && *given > 0 ? static_cast<T>(1.0 / *given) : static_cast<T>(in) / static_cast<T>(out);
  const T place =
      exact ? std::floor((static_cast<T>(i) + static_cast<T>(0.5)) * scale) : std::floor(static_cast<T>(i) * scale);
  return std::min(static_cast<int64_t>(place), in - 1);
}

Taps linear_taps(int64_t in, int64_t out, bool align_corners, OptionalScale given) {
  Taps taps(2, out);
  const double scale = scale_of(in, out, align_corners, given);
  for (int64_t i = 0; i < out; ++i) {
    const double place = std::max(position(scale, i, align_corners), 0.);
    const int64_t low = std::min(static_cast<int64_t>(place), in - 1);
    const double part = std::clamp(place - static_cast<double>(low), 0., 1.);
    taps.index[0][i] = low;
    taps.index[1][i] = std::min(low + 1, in - 1);
    taps.weight[0][i] = 1 - part;
    taps.weight[1][i] = part;
  }
  return taps;
}

// Keys' cubic with the parameter `a`, at a distance.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

Taps cubic_taps(int64_t in, int64_t out, bool align_corners, OptionalScale given) {
  Taps taps(4, out);
  const double scale = scale_of(in, out, align_corners, given);
  for (int64_t i = 0; i < out; ++i) {
    const double place = position(scale, i, align_corners), low = std::floor(place);
    for (int k = 0; k < 4; ++k) {
      taps.index[k][i] = std::clamp(static_cast<int64_t>(low) + k - 1, int64_t{0}, in - 1);
      taps.weight[k][i] = cubic(place - low - (k - 1), -0.75);
    }
  }
  return taps;
}

double filter(Filter kind, double x) {
  const double size = std::abs(x);
  if (kind == Filter::Linear) return size < 1 ? 1 - size : 0;
  if (kind == Filter::Cubic) return cubic(x, -0.5);
  const auto sinc = [](double t) { return t == 0 ? 1. : std::sin(t * std::numbers::pi) / (t * std::numbers::pi); };
  return size < 3 ? sinc(x) * sinc(x / 3) : 0;
}

// Filters as wide as what one pixel of the result stands for.
Taps wide_taps(Filter kind, int64_t in, int64_t out, bool align_corners, OptionalScale given) {
  const double scale = scale_of(in, out, align_corners, given);
  const double reach = kind == Filter::Linear ? 1 : kind == Filter::Cubic ? 2 : 3;
  const double support = scale >= 1 ? reach * scale : reach, narrower = scale >= 1 ? 1 / scale : 1;
  Taps taps(static_cast<size_t>(std::ceil(support)) * 2 + 1, out);
  for (int64_t i = 0; i < out; ++i) {
    const double centre = scale * (static_cast<double>(i) + 0.5);
    const int64_t first = std::max(static_cast<int64_t>(centre - support + 0.5), int64_t{0});
    const int64_t last = std::min(static_cast<int64_t>(centre + support + 0.5), in);
    double sum = 0;
    const auto count = std::clamp<int64_t>(last - first, 0, static_cast<int64_t>(taps.index.size()));
    for (int64_t k = 0; k < count; ++k) {
      taps.index[k][i] = first + k;
      taps.weight[k][i] = filter(kind, (static_cast<double>(first + k) - centre + 0.5) * narrower);
      sum += taps.weight[k][i];
    }
    for (int64_t k = 0; k < count && sum != 0; ++k) taps.weight[k][i] /= sum;
  }
  return taps;
}

Taps taps_of(const Resize& resize, ScalarType type, int64_t in, int64_t out, OptionalScale scale, bool kept) {
  if (in == out && kept) {
    Taps taps(1, out);
    std::iota(taps.index[0].begin(), taps.index[0].end(), 0);
    std::fill(taps.weight[0].begin(), taps.weight[0].end(), 1);
    return taps;
  }
  if (resize.antialias) return wide_taps(resize.filter, in, out, resize.align_corners, scale);
  if (resize.filter == Filter::Linear) return linear_taps(in, out, resize.align_corners, scale);
  if (resize.filter == Filter::Cubic) return cubic_taps(in, out, resize.align_corners, scale);
  Taps taps(1, out);
  const bool exact = resize.filter == Filter::NearestExact;
  for (int64_t i = 0; i < out; ++i) {
    taps.index[0][i] =
        type == kDouble ? nearest<double>(in, out, scale, i, exact) : nearest<float>(in, out, scale, i, exact);
    taps.weight[0][i] = 1;
  }
  return taps;
}

// Whether a dimension whose size stays is left as it is, whatever scale is given for it.
bool keeps_size(const Resize& how, bool backward, size_t spatial) {
  return how.antialias || how.filter == Filter::Linear || (how.filter == Filter::Nearest && (backward || spatial == 2));
}

// Along one dimension: what a tap takes from the input, or gives back to it.
Tensor along(const Tensor& x, int64_t dim, const Taps& taps, int64_t size, bool backward) {
  DimVector sizes(x.sizes()), broadcast(x.dim(), 1);
  sizes[dim] = size;
  broadcast[dim] = static_cast<int64_t>(taps.index[0].size());
  Tensor result = backward ? at::zeros(sizes, x.options()) : Tensor();
  for (size_t k = 0; k < taps.index.size(); ++k) {
    const bool plain = std::all_of(taps.weight[k].begin(), taps.weight[k].end(), [](double w) { return w == 1; });
    if (k > 0 && std::all_of(taps.weight[k].begin(), taps.weight[k].end(), [](double w) { return w == 0; })) continue;
    const Tensor index = at::tensor(taps.index[k], kLong).to(x.device());
    const Tensor weight =
        plain ? Tensor() : at::tensor(taps.weight[k], kDouble).to(x.scalar_type()).to(x.device()).reshape(broadcast);
    if (backward) {
      result = result.index_add(dim, index, plain ? x : x * weight);
      continue;
    }
    Tensor part = x.index_select(dim, index);
    if (!plain) part = part * weight;
    result = result.defined() ? result + part : part;
  }
  return result;
}

}  // namespace

Tensor resize(const Resize& how, const Tensor& self, IntArrayRef output_size, at::ArrayRef<OptionalScale> scales,
              const char* ir) {
  const bool exact = how.filter == Filter::Nearest || how.filter == Filter::NearestExact;
  // Upstream computes weighted sums of bytes in fixed point.
  if (!exact && self.scalar_type() == kByte) throw MissingOperator(ir);
  Tensor x = exact ? self : wide(self, self.scalar_type());
  const bool kept = keeps_size(how, false, output_size.size());
  for (size_t d = 0; d < output_size.size(); ++d) {
    const auto dim = static_cast<int64_t>(d) + 2;
    x = along(x, dim, taps_of(how, self.scalar_type(), self.size(dim), output_size[d], scales[d], kept), output_size[d],
              false);
  }
  return x;
}

Tensor resize_backward(const Resize& how, const Tensor& grad, IntArrayRef input_size,
                       at::ArrayRef<OptionalScale> scales) {
  Tensor x = wide(grad, grad.scalar_type());
  const bool kept = keeps_size(how, true, input_size.size() - 2);
  for (size_t d = 0; d + 2 < input_size.size(); ++d) {
    const auto dim = static_cast<int64_t>(d) + 2;
    const Taps taps = taps_of(how, grad.scalar_type(), input_size[dim], grad.size(dim), scales[d], kept);
    x = along(x, dim, taps, input_size[dim], true);
  }
  return x;
}

Tensor pool_backward(const Tensor& grad, const Tensor& self, const Tensor& indices, int64_t spatial) {
  const int64_t first = self.dim() - spatial;
  const Tensor flat = at::zeros_like(self, MemoryFormat::Contiguous).flatten(first);
  return flat.scatter_add(-1, indices.flatten(first), grad.flatten(first)).reshape(self.sizes());
}

Tensor unpool(const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  const int64_t first = self.dim() - static_cast<int64_t>(output_size.size());
  DimVector sizes(self.sizes().slice(0, first));
  sizes.append(output_size.begin(), output_size.end());
  const Tensor flat = at::zeros(sizes, self.options()).flatten(first);
  return flat.scatter(-1, indices.flatten(first), self.flatten(first)).reshape(sizes);
}

}  // namespace at::native::npu::composed
