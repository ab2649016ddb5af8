// Order statistics, searching and counting.

#include <ATen/MemoryOverlap.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Dims.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/Numbers.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/result_type.h>
#include <NPUNativeFunctions.h>

#include <cmath>

namespace at::native::npu {

namespace {

// Values and indices along one dimension, which is removed or kept with one element.
struct AlongDim {
  int64_t dim;
  Tensor values;
  Tensor indices;
};

AlongDim along_dim(const char* name, const Tensor& self, int64_t dim, bool keepdim) {
  dim = wrapped(self, dim);
  if (self.numel() == 0) at::native::zero_numel_check_dims(self, dim, name);
  DimVector shape(self.sizes());
  if (!shape.empty()) {
    if (keepdim) {
      shape[dim] = 1;
    } else {
      shape.erase(shape.begin() + dim);
    }
  }
  return {dim, empty_npu(shape, self.scalar_type(), self.device()), empty_npu(shape, kLong, self.device())};
}

std::tuple<Tensor&, Tensor&> give_both(AlongDim& found, Tensor& values, Tensor& indices) {
  give(found.values, values);
  give(found.indices, indices);
  return std::forward_as_tuple(values, indices);
}

AlongDim median_along(const Tensor& self, int64_t dim, bool keepdim, bool ignore_nan) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypePlainInt, "median_out");
  AlongDim found = along_dim("median()", self, dim, keepdim);
  if (found.values.numel() == 0) return found;
  if (lacks("Median")) {
    std::tie(found.values, found.indices) = composed::median_along(self, found.dim, keepdim, ignore_nan);
    return found;
  }
  OpCommand cmd;
  cmd.Name("Median").Input(self).Output(found.values).Output(found.indices).Attr("dim", found.dim);
  cmd.Attr("keep_dims", keepdim).Attr("ignore_nan", ignore_nan).Run();
  return found;
}

Tensor median_of_all(const Tensor& self, bool ignore_nan) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypePlainInt, "median_cpu");
  Tensor result = empty_npu({}, self.scalar_type(), self.device());
  if (self.numel() == 0) return result.fill_(std::numeric_limits<double>::quiet_NaN());
  if (lacks("MedianAll")) return composed::median(self, ignore_nan);
  OpCommand cmd;
  cmd.Name("MedianAll").Input(self).Output(result).Attr("ignore_nan", ignore_nan).Run();
  return result;
}

}  // namespace

Tensor median(const Tensor& self) { return median_of_all(self, false); }
Tensor nanmedian(const Tensor& self) { return median_of_all(self, true); }

std::tuple<Tensor&, Tensor&> median_dim_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                            Tensor& indices) {
  AlongDim found = median_along(self, dim, keepdim, false);
  return give_both(found, values, indices);
}

std::tuple<Tensor&, Tensor&> nanmedian_dim_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                               Tensor& indices) {
  AlongDim found = median_along(self, dim, keepdim, true);
  return give_both(found, values, indices);
}

std::tuple<Tensor, Tensor> mode(const Tensor& self, int64_t dim, bool keepdim) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypeInt | kDtypeBool, "mode");
  AlongDim found = along_dim("mode()", self, dim, keepdim);
  if (found.values.numel() > 0 && lacks("Mode")) return composed::mode(self, found.dim, keepdim);
  if (found.values.numel() > 0) {
    OpCommand cmd;
    cmd.Name("Mode").Input(self).Output(found.values).Output(found.indices).Attr("dim", found.dim);
    cmd.Attr("keep_dims", keepdim).Run();
  }
  return {found.values, found.indices};
}

std::tuple<Tensor&, Tensor&> mode_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
  TORCH_CHECK(values.scalar_type() == self.scalar_type(), "expected scalar type '", self.scalar_type(), "' but got '",
              values.scalar_type(), "' for values output");
  TORCH_CHECK(indices.scalar_type() == kLong, "expected scalar type '", kLong, "' but got '", indices.scalar_type(),
              "' for indices output");
  const auto [found, positions] = npu::mode(self, dim, keepdim);
  give(found, values);
  give(positions, indices);
  return std::forward_as_tuple(values, indices);
}

std::tuple<Tensor&, Tensor&> kthvalue_out(const Tensor& self, int64_t k, int64_t dim, bool keepdim, Tensor& values,
                                          Tensor& indices) {
  DeviceOf guard(self);
  TORCH_CHECK(values.scalar_type() == self.scalar_type(), "output values must be of same type as input");
  TORCH_CHECK(indices.scalar_type() == kLong, "output indices must be of scalar type Long");
  check_dtype(self.scalar_type(), kDtypeCommon, "kthvalue_cpu");
  AlongDim found = along_dim("kthvalue()", self, dim, keepdim);
  for (const Tensor* out : {&values, &indices}) {
    at::assert_no_internal_overlap(*out);
    at::assert_no_overlap(*out, self);
  }
  TORCH_CHECK(k >= 1 && k <= (self.dim() > 0 ? self.size(found.dim) : 1),
              "kthvalue(): selected number k out of range for dimension ", found.dim);
  if (found.values.numel() > 0 && lacks("KthValue")) {
    std::tie(found.values, found.indices) = composed::kthvalue(self, k, found.dim, keepdim);
  } else if (found.values.numel() > 0) {
    OpCommand cmd;
    cmd.Name("KthValue").Input(self).Output(found.values).Output(found.indices).Attr("k", k);
    cmd.Attr("dim", found.dim).Attr("keep_dims", keepdim).Run();
  }
  return give_both(found, values, indices);
}

Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1 && isIntegralType(self.scalar_type(), false),
              "bincount only supports 1-d non-negative integral inputs.");
  const bool weighted = weights.has_value() && weights->defined();
  TORCH_CHECK(!weighted || weights->sizes() == self.sizes(), "weights should be 1-d and have the same length as input");
  DeviceOf guard(self);
  const ScalarType dtype = !weighted ? kLong : weights->scalar_type() == kFloat ? kFloat : kDouble;
  if (self.numel() == 0) return at::zeros({minlength}, self.options().dtype(kLong));
  const auto [least, most] = at::aminmax(self);
  TORCH_CHECK(least.item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const int64_t count = std::max<int64_t>(most.item<int64_t>() + 1, minlength);
  Tensor result = empty_npu({count}, dtype, self.device());
  OpCommand cmd;
  cmd.Name("Bincount").Input(self.to(kInt)).Input(Scalar(count), kInt);
  cmd.Input(weighted ? *weights : empty_npu({0}, dtype, self.device())).Output(result).Run();
  return result;
}

namespace {

// At the call, as upstream on every device: where the range is found among the values the host waits for it.
void check_range(const Tensor& self, double least, double most) {
  if (least == most) {
    const auto [low, high] = at::aminmax(self);
    least = low.item<double>(), most = high.item<double>();
  }
  TORCH_CHECK(std::isfinite(least) && std::isfinite(most), "torch.histc: range of [", least, ", ", most,
              "] is not finite");
}

}  // namespace

Tensor histc(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypePlainInt, "histogram_cpu");
  TORCH_CHECK(bins > 0, "bins must be > 0");
  // Equal bounds, zeros by default, are found among the values.
  TORCH_CHECK(max.toDouble() >= min.toDouble(), "torch.histc: max must be larger than min");
  DeviceOf guard(self);
  if (isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    // As on CUDA: bounds are integers, counts of the input's dtype. Places among the bins are exact in fp64.
    const Tensor counts = npu::histc(self.to(kDouble), bins, Scalar(min.to<int64_t>()), Scalar(max.to<int64_t>()));
    return counts.to(kLong).to(self.scalar_type());
  }
  Tensor result = empty_npu({bins}, self.scalar_type(), self.device());
  if (self.numel() == 0) return result.zero_();
  check_range(self, min.toDouble(), max.toDouble());
  const bool fits = attrs_hold(self.scalar_type(), {min.toDouble(), max.toDouble()});
  if (!fits && lacks("HistogramWide")) return composed::histc(self, bins, min.toDouble(), max.toDouble());
  OpCommand cmd;
  if (fits) {
    cmd.Name("Histogram").Input(self).Attr("min", min.toDouble()).Attr("max", max.toDouble());
  } else {
    cmd.Name("HistogramWide").Input(self).Input(min, kDouble).Input(max, kDouble);
  }
  cmd.Output(result).Attr("bins", bins).Run();
  return result;
}

Tensor& histc_out(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(),
              "torch.histogram: input tensor and hist tensor should have the same dtype, but got input ", self.dtype(),
              " and hist ", out.dtype());
  return give(npu::histc(self, bins, min, max), out);
}

namespace {

void check_empty_slices(const Tensor& self, int64_t slices) {
  TORCH_CHECK(slices == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  TORCH_CHECK(std::count(self.sizes().begin(), self.sizes().end(), 0) == 1,
              "Number of zero sized dimensions is more than one, so unique cannot be applied");
}

// The number of different values is known on the device only: it is read before the results are cut to size, as the
// last position among them that any element has.
std::tuple<Tensor, Tensor, Tensor> unique_values(bool consecutive, const Tensor& self, bool inverse, bool counts) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypeInt | kDtypeBool, "unique");
  const int64_t n = self.numel();
  const Device device = self.device();
  const auto none = [&] { return empty_npu({0}, kLong, device); };
  if (n == 0)
    return {empty_npu({0}, self.scalar_type(), device), inverse ? empty_npu(self.sizes(), kLong, device) : none(),
            none()};
  const Tensor flat = self.reshape({n});
  const Tensor values = empty_npu({n}, self.scalar_type(), device), positions = empty_npu({n}, kLong, device);
  const Tensor times = empty_npu({n}, kLong, device);
  OpCommand cmd;
  cmd.Name(consecutive ? "UniqueConsecutive" : "UniqueWithCountsAndSorting").Input(flat);
  cmd.Output(values).Output(positions).Output(times).Attr(consecutive ? "return_idx" : "return_inverse", true);
  cmd.Attr("return_counts", true).Run();
  const int64_t count = positions.max().item<int64_t>() + 1;
  return {values.narrow(0, 0, count).clone(), inverse ? positions.view(self.sizes()) : none(),
          counts ? times.narrow(0, 0, count).clone() : none()};
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& self, bool /*sorted*/, bool return_inverse,
                                            bool return_counts) {
  return unique_values(false, self, return_inverse, return_counts);
}

std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts,
                                                      std::optional<int64_t> dim) {
  if (!dim.has_value()) return unique_values(true, self, return_inverse, return_counts);
  const int64_t axis = wrapped(self, *dim);
  const int64_t n = self.size(axis);
  const TensorOptions positions = self.options().dtype(kLong);
  if (n == 0 || self.numel() == 0) {
    check_empty_slices(self, n);
    return {self.clone(), at::empty({0}, positions), at::empty({0}, positions)};
  }
  // A slice begins a group where it differs from the one before.
  const Tensor rows = self.movedim(axis, 0).reshape({n, -1});
  const Tensor begins = at::cat(
      {at::ones({1}, self.options().dtype(kBool)), rows.narrow(0, 1, n - 1).ne(rows.narrow(0, 0, n - 1)).any(1)});
  const Tensor first = begins.nonzero().squeeze(1);
  const Tensor inverse = begins.cumsum(0).sub(1);
  const Tensor counts =
      return_counts ? at::cat({first, at::full({1}, n, positions)}).diff() : at::empty({0}, positions);
  return {self.index_select(axis, first), return_inverse ? inverse : at::empty({0}, positions), counts};
}

std::tuple<Tensor, Tensor> _unique(const Tensor& self, bool sorted, bool return_inverse) {
  auto [values, inverse, counts] = npu::_unique2(self, sorted, return_inverse, false);
  return {values, inverse};
}

namespace {

Tensor find_positions(const Tensor& sorted, const Tensor& values, bool out_int32, bool right,
                      const std::optional<Tensor>& sorter) {
  DeviceOf guard(sorted);
  TORCH_CHECK(sorted.device() == values.device(),
              "torch.searchsorted(): boundaries and input value tensors should have "
              "same device type, but got boundaries tensor device type ",
              sorted.device(),
              " and input value tensor "
              "device type ",
              values.device());
  TORCH_CHECK(
      sorted.dim() == 1 || (sorted.dim() == values.dim() && sorted.dim() > 0 &&
                            sorted.sizes().slice(0, sorted.dim() - 1) == values.sizes().slice(0, values.dim() - 1)),
      "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
      "tensor and input value tensor must match, but we got boundaries tensor ",
      sorted.sizes(), " and input value tensor ", values.sizes());
  if (sorter.has_value() && sorter->defined()) {
    TORCH_CHECK(sorter->sizes() == sorted.sizes(),
                "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor ",
                sorted.sizes(), " and got sorter tensor ", sorter->sizes());
    TORCH_CHECK(sorter->scalar_type() == kLong,
                "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype ", sorter->scalar_type());
    // At the call, as upstream on every device: the host waits for it.
    if (sorter->numel() > 0) {
      const auto [first, last] = at::aminmax(*sorter);
      TORCH_CHECK(first.item<int64_t>() >= 0 && last.item<int64_t>() < sorter->size(-1),
                  "torch.searchsorted(): sorter index out of range");
    }
  }
  Tensor result = empty_npu(values.sizes(), out_int32 ? kInt : kLong, sorted.device());
  if (result.numel() == 0) return result;
  if (sorted.numel() == 0) return result.zero_();
  const ScalarType type = at::result_type(sorted, values);
  check_dtype(type, (kDtypeFloat | kDtypeInt) & ~dtype_mask(ScalarType::UInt16, ScalarType::UInt32, ScalarType::UInt64),
              "searchsorted");
  OpCommand cmd;
  cmd.Name("SearchSorted")
      .Input(cast(sorted, type))
      .Input(cast(values, type))
      .InputOptional(sorter)
      .Output(result)
      .Attr("right", right);
  cmd.Attr("dtype", result.scalar_type()).Run();
  return result;
}

// A number takes part in promotion as a number: 1.5 among integers stays 1.5.
Tensor number_for(const Tensor& sorted, const Scalar& value) {
  return at::full({}, value, sorted.options().dtype(at::result_type(sorted, value)));
}

void check_positions(const Tensor& out, bool out_int32) {
  TORCH_CHECK(
      out.scalar_type() == (out_int32 ? kInt : kLong),
      "torch.searchsorted(): out= has to be Int (int32) with out_int32=True and Long (int64) otherwise, but it is ",
      out.scalar_type(), " and out_int32 is ", out_int32);
}

bool on_the_right(bool right, const std::optional<std::string_view>& side) {
  if (!side.has_value()) return right;
  TORCH_CHECK(*side == "left" || *side == "right", "torch.searchsorted(): side can only be 'left' or 'right' but got ",
              *side);
  TORCH_CHECK(!right || *side == "right",
              "torch.searchsorted(): side and right can't be set to opposites, got side of ", *side,
              " while right was True");
  return *side == "right";
}

}  // namespace

Tensor searchsorted(const Tensor& sorted, const Tensor& self, bool out_int32, bool right,
                    std::optional<std::string_view> side, const std::optional<Tensor>& sorter) {
  return find_positions(sorted, self, out_int32, on_the_right(right, side), sorter);
}

Tensor& searchsorted_out(const Tensor& sorted, const Tensor& self, bool out_int32, bool right,
                         std::optional<std::string_view> side, const std::optional<Tensor>& sorter, Tensor& out) {
  check_positions(out, out_int32);
  return give(npu::searchsorted(sorted, self, out_int32, right, side, sorter), out);
}

Tensor searchsorted_scalar(const Tensor& sorted, const Scalar& self, bool out_int32, bool right,
                           std::optional<std::string_view> side, const std::optional<Tensor>& sorter) {
  return npu::searchsorted(sorted, number_for(sorted, self), out_int32, right, side, sorter);
}

Tensor bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  return find_positions(boundaries, self, out_int32, right, std::nullopt);
}

Tensor& bucketize_out(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right, Tensor& out) {
  check_positions(out, out_int32);
  return give(npu::bucketize(self, boundaries, out_int32, right), out);
}

Tensor bucketize_scalar(const Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  return npu::bucketize(number_for(boundaries, self), boundaries, out_int32, right);
}

// Among one number is what equals it.
Tensor isin_scalar(const Tensor& elements, const Scalar& test_element, bool, bool invert) {
  return invert ? at::ne(elements, test_element) : at::eq(elements, test_element);
}

Tensor& isin_scalar_out(const Tensor& elements, const Scalar& test_element, bool assume_unique, bool invert,
                        Tensor& out) {
  TORCH_CHECK(out.scalar_type() == kBool, "Expected out tensor to have dtype bool, but got ", out.dtype(), " instead");
  return give(npu::isin_scalar(elements, test_element, assume_unique, invert), out);
}

std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor& self, int64_t dim, bool /*sorted*/, bool return_inverse,
                                              bool return_counts) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypeInt | kDtypeBool, "unique_dim");
  const int64_t axis = wrapped(self, dim);
  const Device device = self.device();
  const int64_t n = self.dim() > 0 ? self.size(axis) : 1;
  if (self.numel() == 0) {
    check_empty_slices(self, n);
    return {self.clone(), empty_npu({0}, kLong, device), empty_npu({0}, kLong, device)};
  }
  const Tensor values = empty_as(self), found = empty_npu({}, kLong, device);
  const Tensor positions = empty_npu({n}, kLong, device), times = empty_npu({n}, kLong, device);
  OpCommand cmd;
  cmd.Name("UniqueAlongAxis").Input(self).Output(values).Output(positions).Output(times).Output(found);
  cmd.Attr("axis", axis).Run();
  // How many there are is known on the device only.
  const auto count = found.item<int64_t>();
  const Tensor none = empty_npu({0}, kLong, device);
  return {self.dim() > 0 ? values.narrow(axis, 0, count).clone() : values, return_inverse ? positions : none,
          return_counts ? times.narrow(0, 0, count).clone() : none};
}

std::tuple<Tensor, Tensor, Tensor> unique_dim_consecutive(const Tensor& self, int64_t dim, bool return_inverse,
                                                          bool return_counts) {
  return npu::unique_consecutive(self, return_inverse, return_counts, dim);
}

}  // namespace at::native::npu
