// Histograms by a search among the edges of the bins and a sum into those that were found.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>

#include <cmath>

namespace at::native::npu {
namespace {

std::optional<Tensor> weight_of(const AtenArguments& a) {
  const c10::IValue& value = a["weight"];
  return value.isTensor() && value.toTensor().defined() ? std::optional<Tensor>(value.toTensor()) : std::nullopt;
}

// A point's coordinates are a row.
Tensor points_of(const Tensor& self, int64_t dimensions) { return self.reshape({-1, dimensions}); }

// Where the bins of each dimension begin and end: as it is said, or the least and the largest coordinate.
std::vector<Tensor> edges_of(const Tensor& points, at::ArrayRef<int64_t> bins, const c10::IValue& range) {
  const int64_t dimensions = points.size(1);
  std::vector<double> bounds(2 * dimensions, 0);
  for (int64_t d = 0; d < dimensions; ++d) bounds[2 * d + 1] = 1;
  if (range.isDoubleList()) {
    bounds = range.toDoubleVector();
    TORCH_CHECK(static_cast<int64_t>(bounds.size()) == 2 * dimensions, "torch.histogramdd: ", dimensions,
                " dimensions have ", 2 * dimensions, " bounds, but range has ", bounds.size());
  } else if (points.numel() > 0) {
    const auto [least, most] = at::aminmax(points, 0);
    const Tensor found = at::stack({least, most}, 1).to(kDouble).cpu().contiguous();
    bounds.assign(found.const_data_ptr<double>(), found.const_data_ptr<double>() + found.numel());
  }
  std::vector<Tensor> edges;
  for (int64_t d = 0; d < dimensions; ++d) {
    double least = bounds[2 * d], most = bounds[2 * d + 1];
    TORCH_CHECK(std::isfinite(least) && std::isfinite(most), "torch.histogramdd: the range [", least, ", ", most,
                "] of dimension ", d, " is not finite");
    TORCH_CHECK(least <= most, "torch.histogramdd: the range [", least, ", ", most, "] of dimension ", d,
                " ends before it begins");
    if (least == most) least -= 0.5, most += 0.5;
    edges.push_back(at::linspace(least, most, bins[d] + 1, points.options()));
  }
  return edges;
}

Tensor counted(const Tensor& points, const std::vector<Tensor>& edges, const std::optional<Tensor>& weight,
               bool density) {
  Tensor place = at::zeros({points.size(0)}, points.options().dtype(kLong)), inside = place.eq(0);
  DimVector shape;
  for (size_t d = 0; d < edges.size(); ++d) {
    const Tensor x = points.select(1, static_cast<int64_t>(d)).contiguous(), bounds = edges[d].contiguous();
    const int64_t bins = bounds.numel() - 1;
    shape.push_back(bins);
    const Tensor after = at::searchsorted(bounds, x, /*out_int32=*/false, /*right=*/true) - 1;
    const Tensor found = at::where(x.eq(bounds.select(0, bins)), bins - 1, after);  // the last bin has its end, too
    inside = inside.logical_and(found.ge(0)).logical_and(found.lt(bins)).logical_and(x.eq(x));
    place = place * bins + found;
  }
  const Tensor none = at::zeros({points.size(0)}, points.options());
  const Tensor amount = weight.has_value() ? weight->reshape({-1}) : at::ones_like(none);
  Tensor counts = at::zeros({c10::multiply_integers(shape)}, points.options());
  if (points.size(0) > 0) {
    counts = counts.scatter_add(0, at::where(inside, place, at::zeros_like(place)), at::where(inside, amount, none));
  }
  counts = counts.reshape(shape);
  if (!density) return counts;
  counts = counts / counts.sum();
  for (size_t d = 0; d < edges.size(); ++d) {
    DimVector along(shape.size(), 1);
    along[d] = shape[d];
    counts = counts / edges[d].diff().reshape(along);
  }
  return counts;
}

}  // namespace

std::vector<Tensor> composed_histogram(const AtenArguments& a) {
  const Tensor points = points_of(a.tensor("self"), 1);
  const std::vector<Tensor> edges = edges_of(points, a["bins"].toInt(), a["range"]);
  return {counted(points, edges, weight_of(a), a["density"].toBool()), edges[0]};
}

std::vector<Tensor> composed_histogram_of_bins(const AtenArguments& a) {
  const Tensor& bins = a.tensor("bins");
  return {counted(points_of(a.tensor("self"), 1), {bins}, weight_of(a), a["density"].toBool()), bins.clone()};
}

std::vector<Tensor> composed_histogramdd_edges(const AtenArguments& a) {
  const auto bins = a["bins"].toIntVector();
  return edges_of(points_of(a.tensor("self"), a.tensor("self").size(-1)), bins, a["range"]);
}

std::vector<Tensor> composed_histogramdd(const AtenArguments& a) {
  const auto bins = a["bins"].toIntVector();
  const Tensor points = points_of(a.tensor("self"), a.tensor("self").size(-1));
  return {counted(points, edges_of(points, bins, a["range"]), weight_of(a), a["density"].toBool())};
}

std::vector<Tensor> composed_histogramdd_of_bins(const AtenArguments& a) {
  const Tensor points = points_of(a.tensor("self"), a.tensor("self").size(-1));
  return {counted(points, a["bins"].toTensorVector(), weight_of(a), a["density"].toBool())};
}

}  // namespace at::native::npu
