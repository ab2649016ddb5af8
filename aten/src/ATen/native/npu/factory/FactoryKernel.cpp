// New tensors and their first contents.

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/HostScalar.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/layout/Strides.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

namespace {

void check_factory(std::optional<Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(layout.value_or(kStrided) == kStrided, "npu tensors have the strided layout, not ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

// The code of a number in one of the float8 types that CANN has no dtype for.
Scalar code_of(const Scalar& value, ScalarType dtype) {
  uint8_t code = 0;
  write_scalar(value, dtype, &code);
  return Scalar(static_cast<int64_t>(code));
}

// Fills memory of any strides with one value. Filling an expanded tensor is allowed, as on other devices.
void fill_with(const Tensor& self, const Scalar& value) {
  if (self.numel() == 0) return;
  if (C10_UNLIKELY(!has_acl_dtype(self.scalar_type()))) {
    return fill_with(self.view(kByte), code_of(value, self.scalar_type()));
  }
  if (C10_UNLIKELY(at::has_internal_overlap(self) == MemOverlap::Yes)) return fill_with(without_repeats(self), value);
  DeviceOf guard(self);
  OpCommand cmd;
  cmd.Name("Fill").Elementwise();
  if (self.is_contiguous() || self.is_non_overlapping_and_dense()) {
    // Every element is the same: the order of dimensions does not matter.
    cmd.Input(self.sizes()).Input(value, self.scalar_type()).OutputAs(self, self.sizes()).Run();
  } else {
    cmd.Input(self.sizes()).Input(value, self.scalar_type()).Output(self).Run();
  }
}

// Under torch.use_deterministic_algorithms nobody may compute with what memory held before.
void fill_if_deterministic(Tensor& t) {
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(t);
  }
}

}  // namespace

Tensor empty(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout> layout,
             std::optional<Device> device, std::optional<bool> pin_memory, std::optional<MemoryFormat> memory_format) {
  check_factory(layout, pin_memory);
  Tensor result =
      empty_npu(size, dtype.value_or(typeMetaToScalarType(at::get_default_dtype())), resolve_device(device));
  if (memory_format.has_value() && *memory_format != MemoryFormat::Contiguous) {
    TORCH_CHECK(*memory_format != MemoryFormat::Preserve, "memory format Preserve needs a tensor to preserve from");
    result.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  fill_if_deterministic(result);
  return result;
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype,
                     std::optional<Layout> layout, std::optional<Device> device, std::optional<bool> pin_memory) {
  check_factory(layout, pin_memory);
  Tensor result =
      empty_npu(size, stride, dtype.value_or(typeMetaToScalarType(at::get_default_dtype())), resolve_device(device));
  fill_if_deterministic(result);
  return result;
}

Tensor& fill_scalar(Tensor& self, const Scalar& value) {
  check_fits(value, self.scalar_type());
  fill_with(self, value);
  return self;
}

Tensor& fill_tensor(Tensor& self, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  if (value.device() != self.device()) {
    fill_with(self, value.item());
  } else {
    self.copy_(value);
  }
  return self;
}

Tensor& zero_(Tensor& self) {
  if (self.numel() == 0) return self;
  if (C10_UNLIKELY(at::has_internal_overlap(self) == MemOverlap::Yes)) {
    without_repeats(self).zero_();
    return self;
  }
  if (C10_UNLIKELY(!has_acl_dtype(self.scalar_type()) && self.itemsize() <= 2 && !self.is_quantized())) {
    self.view(self.itemsize() == 1 ? kByte : kShort).zero_();  // zeros are zeros in types of bits, too
    return self;
  }
  DeviceOf guard(self);
  if (!has_acl_dtype(self.scalar_type()) || (!self.is_contiguous() && !self.is_non_overlapping_and_dense())) {
    fill_with(self, 0);  // what it holds need not be made contiguous first
    return self;
  }
  OpCommand cmd;
  cmd.Name("ZerosLike").InputAs(self, self.sizes()).OutputAs(self, self.sizes()).Run();
  return self;
}

Tensor& arange_out(const Scalar& start, const Scalar& end, const Scalar& step, Tensor& out) {
  check_dtype(out.scalar_type(), kDtypeFloat | kDtypePlainInt, "arange_cpu");
  const int64_t count = out.scalar_type() == kLong ? at::native::compute_arange_size<int64_t>(start, end, step)
                                                   : at::native::compute_arange_size<double>(start, end, step);
  if (out.numel() != count) {
    if (out.numel() > 0) {
      TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
                 " which does not match the computed number of elements ", count,
                 ". Note that this may occur as a result of rounding error. The out tensor will be resized to a "
                 "tensor of shape (",
                 count, ",).");
    }
    out.resize_({count});
  }
  if (count == 0) return out;
  DeviceOf guard(out);
  // Integers are stepped in int64, floats in double, and rounded once.
  const ScalarType wide = isIntegralType(out.scalar_type(), false) ? kLong : kDouble;
  // A limit with a fraction may lie beyond one more integer.
  const Scalar limit = wide == kLong ? Scalar(start.to<int64_t>() + step.to<int64_t>() * count) : end;
  OpCommand cmd;
  cmd.Name("Range").Input(start, wide).Input(limit, wide).Input(step, wide).Output(out).Run();
  return out;
}

Tensor& linspace_out(const Scalar& start, const Scalar& end, int64_t steps, Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  if (steps == 0) return out;
  DeviceOf guard(out);
  const ScalarType wide = start.isComplex() || end.isComplex() ? kComplexDouble : kDouble;
  const bool integers = start.isIntegral(true) && end.isIntegral(true);
  OpCommand cmd;
  cmd.Name("LinSpace").Input(start, integers ? kLong : wide).Input(end, integers ? kLong : wide);
  cmd.Input(Scalar(steps), kLong).Output(out).Run();
  return out;
}

Tensor& logspace_out(const Scalar& start, const Scalar& end, int64_t steps, double base, Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  if (steps == 0) return out;
  DeviceOf guard(out);
  const ScalarType wide = start.isComplex() || end.isComplex() ? kComplexDouble : kDouble;
  if (lacks("LogSpace")) {
    // An integer dtype's exponents are integers, as on the CPU.
    const auto bound = [&](const Scalar& v) {
      return isIntegralType(out.scalar_type(), /*includeBool=*/false) ? Scalar(std::trunc(v.toDouble())) : v;
    };
    const Tensor values = composed::logspace(bound(start), bound(end), steps, base, wide, out.device());
    return out.copy_(values.view(out.sizes()));
  }
  OpCommand cmd;
  cmd.Name("LogSpace").Input(start, wide).Input(end, wide).Input(Scalar(steps), kLong).Input(Scalar(base), kDouble);
  cmd.Output(out).Run();
  return out;
}

Tensor& eye_m_out(int64_t n, int64_t m, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  check_dtype(out.scalar_type(), kDtypeCommon, "eye");
  out.resize_({n, m});
  if (out.numel() == 0) return out;
  DeviceOf guard(out);
  if (!has_acl_dtype(out.scalar_type())) {
    out.zero_();
    out.diagonal().fill_(1);
    return out;
  }
  OpCommand cmd;
  cmd.Name("Eye").Output(out).Attr("num_rows", n).Attr("num_columns", m).Run();
  return out;
}

Tensor& eye_out(int64_t n, Tensor& out) { return npu::eye_m_out(n, n, out); }

Tensor tril_indices(int64_t row, int64_t col, int64_t offset, std::optional<ScalarType> dtype,
                    std::optional<Layout> layout, std::optional<Device> device, std::optional<bool> pin_memory) {
  check_factory(layout, pin_memory);
  const auto options = TensorOptions().dtype(kBool).device(resolve_device(device));
  return at::ones({row, col}, options).tril(offset).nonzero().t().contiguous().to(dtype.value_or(kLong));
}

Tensor triu_indices(int64_t row, int64_t col, int64_t offset, std::optional<ScalarType> dtype,
                    std::optional<Layout> layout, std::optional<Device> device, std::optional<bool> pin_memory) {
  check_factory(layout, pin_memory);
  const auto options = TensorOptions().dtype(kBool).device(resolve_device(device));
  return at::ones({row, col}, options).triu(offset).nonzero().t().contiguous().to(dtype.value_or(kLong));
}

Tensor efficientzerotensor(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout> /*layout*/,
                           std::optional<Device> device, std::optional<bool> /*pin_memory*/) {
  at::native::ZeroTensorAllocator allocator(resolve_device(device));
  const auto keys = DispatchKeySet(DispatchKey::PrivateUse1).add(DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &allocator, keys,
                                   dtype.value_or(typeMetaToScalarType(caffe2::TypeMeta::Make<float>())), std::nullopt);
}

}  // namespace at::native::npu
