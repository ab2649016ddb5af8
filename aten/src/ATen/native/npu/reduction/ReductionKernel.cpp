// Reductions that need more than one entry of the table: whole tensors, two results, complex operands.

#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Dims.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/ops/aminmax_meta.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

namespace {

DimVector reduced_shape(const Tensor& self, IntArrayRef dims, bool keepdim) {
  DimVector shape;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!reduced) {
      shape.push_back(self.size(d));
    } else if (keepdim) {
      shape.push_back(1);
    }
  }
  return shape;
}

Tensor over_everything(const char* ir, const Tensor& self, ScalarType dtype) {
  DeviceOf guard(self);
  Tensor result = empty_npu({}, dtype, self.device());
  const ScalarType compute = widened(dtype, dtype_bit(kComplexHalf));
  OpCommand cmd;
  cmd.Name(ir).Compute(compute).Input(self).Input(every_dim(self)).Output(result, compute).Attr("keep_dims", false);
  cmd.Run();
  return result;
}

Tensor extreme(const char* ir, const char* name, const Tensor& self) {
  TORCH_CHECK(self.numel() > 0, name,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
              "'dim' argument.");
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypeInt | kDtypeBool, name);
  return over_everything(ir, self, self.scalar_type());
}

// Variance or deviation over dims. Upstream warns where the correction leaves no degree of freedom.
void warn_degrees(const char* name, const Tensor& self, IntArrayRef dims, double correction) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= self.size(d);
  if (self.numel() > 0 && static_cast<double>(count) <= correction) {
    TORCH_WARN(name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
               "(input numel divided by output numel).");
  }
}

struct Spread {
  DimVector dims;
  Scalar correction;
  Tensor result;
};

Spread begin_spread(const char* name, const Tensor& self, OptionalIntArrayRef dim,
                    const std::optional<Scalar>& correction, bool keepdim) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()), name,
              " only support floating point and complex dtypes");
  Spread s{reduced_dims(self, dim), correction.value_or(1), {}};
  warn_degrees(name, self, s.dims, s.correction.toDouble());
  s.result = empty_npu(reduced_shape(self, s.dims, keepdim), toRealValueType(self.scalar_type()), self.device());
  return s;
}

// The operators take whole corrections; with another one, the variance over all elements is scaled.
void issue_spread(bool root, const Tensor& self, const Spread& s, const Tensor& mean, bool keepdim, bool mean_wanted) {
  const double correction = s.correction.toDouble();
  const bool whole = correction == std::floor(correction);
  OpCommand cmd;
  cmd.Name(root && whole ? "ReduceStdV2" : "ReduceVar").Input(self).Output(s.result).Output(mean).Attr("dim", s.dims);
  cmd.Attr("correction", whole ? static_cast<int64_t>(correction) : 0).Attr("keepdim", keepdim);
  cmd.Attr("is_mean_out", mean_wanted).Run();
  if (whole) return;
  double count = 1;
  for (const int64_t d : s.dims) count *= static_cast<double>(self.size(d));
  s.result.mul_(count / std::max(0.0, count - correction));
  if (root) s.result.sqrt_();
}

Tensor spread(bool root, const char* name, const Tensor& self, OptionalIntArrayRef dim,
              const std::optional<Scalar>& correction, bool keepdim) {
  DeviceOf guard(self);
  Spread s = begin_spread(name, self, dim, correction, keepdim);
  if (s.result.numel() == 0) return s.result;
  // The operator has a place for the mean even where nobody asks for it.
  issue_spread(root, self, s, empty_npu(s.result.sizes(), self.scalar_type(), self.device()), keepdim, false);
  return s.result;
}

std::tuple<Tensor, Tensor> spread_mean(bool root, const char* name, const Tensor& self, OptionalIntArrayRef dim,
                                       const std::optional<Scalar>& correction, bool keepdim) {
  DeviceOf guard(self);
  Spread s = begin_spread(name, self, dim, correction, keepdim);
  Tensor mean = empty_npu(s.result.sizes(), self.scalar_type(), self.device());
  if (mean.numel() > 0) issue_spread(root, self, s, mean, keepdim, true);
  return {std::move(s.result), std::move(mean)};
}

}  // namespace

Tensor prod(const Tensor& self, std::optional<ScalarType> dtype) {
  const ScalarType type = at::native::get_dtype_from_self(self, dtype, true);
  if (self.numel() > 0) check_dtype(type, kDtypeCommon, "prod");
  return over_everything("ReduceProd", self, type);
}

Tensor max(const Tensor& self) { return extreme("ReduceMax", "max", self); }
Tensor min(const Tensor& self) { return extreme("ReduceMin", "min", self); }
Tensor& max_unary_out(const Tensor& self, Tensor& out) { return give(npu::max(self), out); }
Tensor& min_unary_out(const Tensor& self, Tensor& out) { return give(npu::min(self), out); }

namespace {

template <class Form>
void min_and_max(Form& op, const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  op.meta(self, dim, keepdim);
  TORCH_CHECK(!self.is_complex(), "aminmax not implemented for ", self.scalar_type());
  if (op.result(0).numel() == 0) return;
  if (self.dim() == 0) {
    op.result(0).copy_(self);
    op.result(1).copy_(self);
    return;
  }
  const DimVector dims = dim.has_value() ? reduced_dims(self, *dim) : every_dim(self);
  OpCommand least;
  least.Name("ReduceMin").Input(self).Input(dims).Output(op.result(0)).Attr("keep_dims", keepdim).Run();
  OpCommand most;
  most.Name("ReduceMax").Input(self).Input(dims).Output(op.result(1)).Attr("keep_dims", keepdim).Run();
}

}  // namespace

std::tuple<Tensor, Tensor> aminmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  DeviceOf guard(self);
  Functional<at::meta::structured_aminmax, 2> op;
  min_and_max(op, self, dim, keepdim);
  return op.take();
}

std::tuple<Tensor&, Tensor&> aminmax_out(const Tensor& self, std::optional<int64_t> dim, bool keepdim, Tensor& min,
                                         Tensor& max) {
  DeviceOf guard(self);
  Out<at::meta::structured_aminmax, 2> op(min, max);
  min_and_max(op, self, dim, keepdim);
  op.finish();
  return std::forward_as_tuple(min, max);
}

Tensor std_correction(const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction,
                      bool keepdim) {
  return spread(true, "std", self, dim, correction, keepdim);
}

namespace {

// What goes into a wider out= tensor is computed in its dtype, as on the CPU.
Tensor as_wide_as(const Tensor& out, const Tensor& self) {
  const ScalarType wide = out.scalar_type(), real = toRealValueType(self.scalar_type());
  if (!isFloatingType(wide) || !isFloatingType(real) || elementSize(wide) <= elementSize(real)) return self;
  return self.to(self.is_complex() ? toComplexType(wide) : wide);
}

}  // namespace

Tensor& std_correction_out(const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction,
                           bool keepdim, Tensor& out) {
  return give(npu::std_correction(as_wide_as(out, self), dim, correction, keepdim), out);
}

Tensor var_correction(const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction,
                      bool keepdim) {
  return spread(false, "var", self, dim, correction, keepdim);
}

Tensor& var_correction_out(const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>& correction,
                           bool keepdim, Tensor& out) {
  return give(npu::var_correction(as_wide_as(out, self), dim, correction, keepdim), out);
}

std::tuple<Tensor, Tensor> std_mean_correction(const Tensor& self, OptionalIntArrayRef dim,
                                               const std::optional<Scalar>& correction, bool keepdim) {
  return spread_mean(true, "std_mean", self, dim, correction, keepdim);
}

std::tuple<Tensor, Tensor> var_mean_correction(const Tensor& self, OptionalIntArrayRef dim,
                                               const std::optional<Scalar>& correction, bool keepdim) {
  return spread_mean(false, "var_mean", self, dim, correction, keepdim);
}

Tensor count_nonzero(const Tensor& self, IntArrayRef dim) { return self.ne(0).sum(dim); }

Tensor nansum(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  if (!at::isFloatingType(self.scalar_type()) && !self.is_complex()) return at::sum(self, dim, keepdim, dtype);
  return at::sum(self.masked_fill(self.ne(self), 0), dim, keepdim, dtype);
}

Tensor& nansum_out(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype,
                   Tensor& out) {
  const ScalarType result = dtype.value_or(out.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isFloatingType(self.scalar_type()) || at::isFloatingType(result), "nansum of ",
                              self.scalar_type(), " into ", result,
                              " is not implemented: out= has to be of a floating-point type");
  return give(npu::nansum(self, dim, keepdim, dtype.value_or(out.scalar_type())), out);
}

void _cummax_helper(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  check_dtype(self.scalar_type(), kDtypeCommon, "cummax_cpu");
  if (self.numel() == 0) return;
  DeviceOf guard(self);
  OpCommand cmd;
  cmd.Name("Cummax").Input(self).Output(values).Output(indices).Attr("dim", wrapped(self, dim)).Run();
}

void _cummin_helper(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  check_dtype(self.scalar_type(), kDtypeCommon, "cummin_cpu");
  if (self.numel() == 0) return;
  DeviceOf guard(self);
  OpCommand cmd;
  cmd.Name("Cummin").Input(self).Output(values).Output(indices).Attr("axis", wrapped(self, dim)).Run();
}

Tensor _logcumsumexp(const Tensor& self, int64_t dim) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypeComplex, "logcumsumexp_out_cpu");
  const int64_t axis = wrapped(self, dim);
  Tensor result = empty_as(self);
  if (self.numel() == 0) return result;
  if (lacks("LogCumsumExp")) return composed::logcumsumexp(self, axis);
  OpCommand cmd;
  cmd.Name("LogCumsumExp").Input(self).Input(IntArrayRef(axis)).Output(result).Run();
  return result;
}

Tensor& _logcumsumexp_out(const Tensor& self, int64_t dim, Tensor& out) {
  check_overlap(out, self);
  return give(npu::_logcumsumexp(self, dim), out);
}

bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ",
              other.device(), "!");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected object of data type ", self.scalar_type(),
              " but got data type ", other.scalar_type(), " for argument 'other' in call to equal");
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  DeviceOf guard(self);
  const Tensor result = empty_npu({}, kBool, self.device());
  OpCommand cmd;
  cmd.Name("TensorEqual").Input(self).Input(other).Output(result).Run();
  return result.item<bool>();
}

std::tuple<Tensor, Tensor> aminmax_of_all(const Tensor& self) { return at::aminmax(self); }

std::tuple<Tensor, Tensor> aminmax_along(const Tensor& self, int64_t dim, bool keepdim) {
  return at::aminmax(self, dim, keepdim);
}

}  // namespace at::native::npu
