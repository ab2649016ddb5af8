// Element-wise operators that are more than one entry of the table: complex results, selections, casts of operands.

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Fast.h>
#include <ATen/native/npu/frame/command/HostScalar.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/MetaRules.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/native/npu/frame/inference/Suggested.h>
#include <ATen/native/npu/frame/layout/Strides.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

namespace {

// One operand, one result of the same shape.
void issue_unary(const char* ir, const Tensor& self, const Tensor& result) {
  if (result.numel() == 0) return;
  OpCommand cmd;
  cmd.Name(ir).Elementwise().Input(self).Output(result).Run();
}

// Complex numbers have a real result.
Tensor complex_to_real(const char* ir, const Tensor& self) {
  Tensor result = empty_preserved(self, toRealValueType(self.scalar_type()));
  if (result.numel() == 0) return result;
  const ScalarType compute = widened(self.scalar_type(), dtype_bit(kComplexHalf));
  OpCommand cmd;
  cmd.Name(ir).Elementwise().Compute(compute).Input(self).Output(result, toRealValueType(compute)).Run();
  return result;
}

// A tensor operand of an operator whose operands differ in dtype; a 0-d CPU tensor goes by value.
void add_operand(OpCommand& cmd, const Tensor& t, ScalarType dtype) {
  if (t.is_cpu() && t.dim() == 0) {
    cmd.Input(read_cpu_scalar(t), dtype);
  } else {
    cmd.Input(cast(t, dtype));
  }
}

// The rule of where: shape of all three, dtype given.
struct select_rule : TensorIteratorBase {
  void meta(const Tensor& condition, const Tensor& self, const Tensor& other, ScalarType dtype, Device device) {
    TensorIteratorConfig config;
    config.check_all_same_dtype(false).check_all_same_device(false);
    if (!maybe_get_output().defined()) config.declare_static_dtype_and_device(dtype, device);
    config.add_borrowed_output(maybe_get_output());
    config.add_borrowed_const_input(condition).add_borrowed_const_input(self).add_borrowed_const_input(other);
    build(config);
  }
};

Tensor checked_condition(const Tensor& condition) {
  if (condition.scalar_type() == kByte) {
    TORCH_WARN_ONCE(
        "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future "
        "version of PyTorch. Use a boolean condition instead.");
    return condition.to(kBool);
  }
  TORCH_CHECK(condition.scalar_type() == kBool,
              "where expected condition to be a boolean tensor, but got a tensor "
              "with dtype ",
              condition.scalar_type());
  return condition;
}

Device common_device(const Tensor& condition, const Tensor& self, const Tensor& other) {
  Device device = kCPU;
  for (const Tensor* t : {&condition, &self, &other}) {
    if (t->device().is_privateuseone()) {
      device = t->device();
      break;
    }
  }
  for (const Tensor* t : {&condition, &self, &other}) {
    TORCH_CHECK(t->device() == device || (t->is_cpu() && t->dim() == 0),
                "Expected all tensors to be on the same device, but found at least two devices, ", device, " and ",
                t->device(), "!");
  }
  return device;
}

template <class Form>
void select(Form& op, const Tensor& condition, const Tensor& self, const Tensor& other, ScalarType dtype,
            Device device) {
  const Tensor checked = checked_condition(condition);
  op.meta(checked, self, other, dtype, device);
  const Tensor& result = op.result(0);
  if (result.numel() == 0) return;
  OpCommand cmd;
  cmd.Name("Select").Elementwise().Input(checked);
  add_operand(cmd, self, dtype);
  add_operand(cmd, other, dtype);
  cmd.Output(result).Run();
}

void check_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  TORCH_CHECK(self.device() == mask.device() || (mask.is_cpu() && mask.dim() == 0),
              "expected self and mask to be on the same device, but got mask on ", mask.device(), " and self on ",
              self.device());
}

void issue_masked_fill(const Tensor& self, const Tensor& mask, const Scalar& value, const Tensor& result) {
  check_fits(value, self.scalar_type());
  if (result.numel() == 0) return;
  OpCommand cmd;
  cmd.Name("MaskedFill").Elementwise().Input(self).Input(mask).Input(value, self.scalar_type()).Output(result).Run();
}

Scalar fill_value(const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  return value.item();
}

// As upstream: the sign is turned where the number is below zero, so that -0 and NaN keep theirs.
Tensor float8_abs(const Tensor& self) {
  check_dtype(self.scalar_type(), ~dtype_mask(ScalarType::Float8_e8m0fnu), "abs_cpu");
  const Tensor codes = self.view(kByte);
  return at::where(cast(self, kFloat).lt(0), codes.bitwise_and(0x7f), codes).view(self.scalar_type());
}

}  // namespace

Tensor abs(const Tensor& self) {
  DeviceOf guard(self);
  if (self.is_complex()) return complex_to_real("Abs", self);
  if (C10_UNLIKELY(isFloat8Type(self.scalar_type()))) return float8_abs(self);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypeInt | kDtypeBool, "abs_cpu");
  Tensor result = empty_iterated(self);
  issue_unary(self.scalar_type() == kBool ? "Identity" : "Abs", self, result);
  return result;
}

Tensor& abs_out(const Tensor& self, Tensor& out) {
  DeviceOf guard(self);
  if (self.is_complex() || isFloat8Type(self.scalar_type())) return give(npu::abs(self), out);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypeInt | kDtypeBool, "abs_cpu");
  Out<meta_rules::unary, 1> op(out);
  op.meta(self);
  const ScalarType compute = op.compute_dtype();
  if (out.numel() > 0) {
    OpCommand cmd;
    cmd.Name(compute == kBool ? "Identity" : "Abs")
        .Elementwise()
        .Compute(compute)
        .Input(self)
        .Output(op.result(0), compute)
        .Run();
  }
  op.finish();
  return out;
}

Tensor& abs_(Tensor& self) {
  TORCH_CHECK(!self.is_complex(), "In-place abs is not supported for complex tensors.");
  return npu::abs_out(self, self);
}

Tensor angle(const Tensor& self) {
  DeviceOf guard(self);
  if (self.is_complex()) return complex_to_real("Angle", self);
  const ScalarType dtype =
      isFloatingType(self.scalar_type()) ? self.scalar_type() : typeMetaToScalarType(at::get_default_dtype());
  Tensor result = empty_preserved(self, dtype);
  issue_unary("Angle", cast(self, dtype), result);
  return result;
}

Tensor& angle_out(const Tensor& self, Tensor& out) {
  check_overlap(out, self);
  return give(npu::angle(self), out);
}

Tensor& conj_physical_out(const Tensor& self, Tensor& out) {
  DeviceOf guard(self);
  Out<meta_rules::unary, 1> op(out);
  op.meta(self);
  issue_unary(self.is_complex() ? "Conj" : "Identity", self, op.result(0));
  op.finish();
  return out;
}

Tensor& conj_physical_(Tensor& self) { return self.is_complex() ? npu::conj_physical_out(self, self) : self; }

Tensor isnan(const Tensor& self) { return self.ne(self); }

Tensor rsub(const Tensor& self, const Tensor& other, const Scalar& alpha) { return at::sub(other, self, alpha); }

std::tuple<Tensor&, Tensor&> frexp_out(const Tensor& self, Tensor& mantissa, Tensor& exponent) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), "torch.frexp() only supports floating-point dtypes");
  TORCH_CHECK(mantissa.dtype() == self.dtype(), "torch.frexp() expects mantissa to have dtype ", self.dtype(),
              " but got ", mantissa.dtype());
  TORCH_CHECK(exponent.scalar_type() == kInt, "torch.frexp() expects exponent to have int dtype but got ",
              exponent.dtype());
  DeviceOf guard(self);
  at::native::resize_output(mantissa, self.sizes());
  at::native::resize_output(exponent, self.sizes());
  check_overlap(mantissa, self);
  check_overlap(exponent, self);
  if (self.numel() > 0 && lacks("Frexp")) {
    const auto [fraction, power] = composed::frexp(self);
    mantissa.copy_(fraction);
    exponent.copy_(power);
  } else if (self.numel() > 0) {
    OpCommand cmd;
    cmd.Name("Frexp").Elementwise().Input(self).Output(mantissa).Output(exponent).Run();
  }
  return std::forward_as_tuple(mantissa, exponent);
}

namespace {

struct two_reals_rule : TensorIteratorBase {
  void meta(const Tensor& first, const Tensor& second) {
    TensorIteratorConfig config;
    config.check_all_same_dtype(false).add_borrowed_output(maybe_get_output());
    build(config.add_borrowed_const_input(first).add_borrowed_const_input(second));
  }
};

Tensor& two_reals(const char* ir, const Tensor& first, const Tensor& second, Tensor& out, DtypeMask wide = 0) {
  const ScalarType compute = widened(first.scalar_type(), wide);
  TORCH_CHECK(first.scalar_type() == second.scalar_type(), "Expected object of scalar type ", first.scalar_type(),
              " but got scalar type ", second.scalar_type(), " for second argument");
  TORCH_CHECK(at::isFloatingType(first.scalar_type()),
              "Expected both inputs to be Half, Float or Double tensors but got ", first.scalar_type(), " and ",
              second.scalar_type());
  TORCH_CHECK(out.scalar_type() == toComplexType(first.scalar_type()), "Expected object of scalar type ",
              toComplexType(first.scalar_type()), " but got scalar type ", out.scalar_type(), " for argument 'out'");
  DeviceOf guard(out);
  Out<two_reals_rule, 1> op(out);
  op.meta(first, second);
  if (out.numel() == 0) return out;
  OpCommand cmd;
  cmd.Name(ir)
      .Elementwise()
      .Compute(compute)
      .Input(first)
      .Input(second)
      .Output(op.result(0), toComplexType(compute))
      .Run();
  op.finish();
  return out;
}

}  // namespace

Tensor& complex_out(const Tensor& real, const Tensor& imag, Tensor& out) {
  return two_reals("Complex", real, imag, out);
}

Tensor& polar_out(const Tensor& abs, const Tensor& angle, Tensor& out) {
  if (lacks("Polar") && abs.scalar_type() == angle.scalar_type() && at::isFloatingType(abs.scalar_type())) {
    return two_reals("Complex", abs * at::cos(angle), abs * at::sin(angle), out);
  }
  return two_reals("Polar", abs, angle, out, dtype_bit(kHalf));
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  const Device device = common_device(condition, self, other);
  DeviceOf guard(device);
  Functional<select_rule, 1> op;
  select(op, condition, self, other, at::native::result_type(self, other), device);
  return op.take();
}

Tensor& where_out(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& out) {
  const ScalarType dtype = at::native::result_type(self, other);
  TORCH_CHECK(out.scalar_type() == dtype, "Expected out type to be ", dtype, " but got ", out.scalar_type());
  common_device(condition, self, other);
  TORCH_CHECK(out.is_privateuseone(), "Expected all tensors to be on the same device, but out is on ", out.device(),
              " and the operands on npu (where)");
  DeviceOf guard(out);
  Out<select_rule, 1> op(out);
  select(op, condition, self, other, dtype, out.device());
  op.finish();
  return out;
}

Tensor& masked_fill_scalar_(Tensor& self, const Tensor& mask, const Scalar& value) {
  check_mask(self, mask);
  DeviceOf guard(self);
  const bool repeats = at::has_internal_overlap(self) == MemOverlap::Yes;
  if (C10_UNLIKELY(repeats)) {
    TORCH_WARN(
        "Use of masked_fill_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
        "operation. This also applies to advanced indexing e.g. tensor[mask] = scalar");
  }
  const Tensor here = mask.dim() == 0 && mask.is_cpu() ? mask.to(self.device()) : mask;
  TORCH_CHECK(is_expandable_to(mask.sizes(), self.sizes()), "The expanded size of the tensor (", self.sizes(),
              ") must match the existing size (", mask.sizes(), ")");
  at::assert_no_partial_overlap(self, here);
  if (C10_UNLIKELY(repeats)) {
    // A place of memory is filled if any of the elements that share it is chosen.
    Tensor chosen = here.expand(self.sizes());
    for (int64_t d = self.dim() - 1; d >= 0; --d) {
      if (self.stride(d) == 0 && self.size(d) > 1) chosen = chosen.any(d);
    }
    const Tensor place = without_repeats(self);
    issue_masked_fill(place, chosen, value, place);
    return self;
  }
  issue_masked_fill(self, here, value, self);
  return self;
}

Tensor& masked_fill_tensor_(Tensor& self, const Tensor& mask, const Tensor& value) {
  return npu::masked_fill_scalar_(self, mask, fill_value(value));
}

Tensor masked_fill_scalar(const Tensor& self, const Tensor& mask, const Scalar& value) {
  check_mask(self, mask);
  DeviceOf guard(self);
  const Tensor here = mask.is_cpu() ? mask.to(self.device()) : mask;
  // Contiguous, as upstream's own.
  Tensor result = empty_npu(infer_size_dimvector(self.sizes(), mask.sizes()), self.scalar_type(), self.device());
  issue_masked_fill(self, here, value, result);
  return result;
}

Tensor masked_fill_tensor(const Tensor& self, const Tensor& mask, const Tensor& value) {
  return npu::masked_fill_scalar(self, mask, fill_value(value));
}

Tensor lshift_scalar(const Tensor& self, const Scalar& other) { return at::bitwise_left_shift(self, other); }
Tensor lshift_tensor(const Tensor& self, const Tensor& other) { return at::bitwise_left_shift(self, other); }
Tensor rshift_scalar(const Tensor& self, const Scalar& other) { return at::bitwise_right_shift(self, other); }
Tensor rshift_tensor(const Tensor& self, const Tensor& other) { return at::bitwise_right_shift(self, other); }
Tensor& ilshift_scalar(Tensor& self, const Scalar& other) { return self.bitwise_left_shift_(other); }
Tensor& ilshift_tensor(Tensor& self, const Tensor& other) { return self.bitwise_left_shift_(other); }
Tensor& irshift_scalar(Tensor& self, const Scalar& other) { return self.bitwise_right_shift_(other); }
Tensor& irshift_tensor(Tensor& self, const Tensor& other) { return self.bitwise_right_shift_(other); }

bool is_set_to(const Tensor& self, const Tensor& tensor) {
  return self.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == tensor.storage_offset() && self.sizes() == tensor.sizes() &&
         self.strides() == tensor.strides();
}

Tensor remainder_of_scalar(const Scalar& self, const Tensor& other) {
  return at::remainder(at::native::wrapped_scalar_tensor(self), other);
}

}  // namespace at::native::npu
