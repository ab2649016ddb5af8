// Operators over lists of tensors, as optimizers and gradient clipping use them: one IR operator for a whole list where
// all tensors are floating-point tensors of one dtype on one device, and those that meet lie in one order of memory;
// upstream's loop over the single operators for anything else.

#include <ATen/native/ForeachUtils.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/layout/Strides.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_addcdiv_native.h>
#include <ATen/ops/_foreach_addcmul_native.h>
#include <ATen/ops/_foreach_copy_native.h>
#include <ATen/ops/_foreach_div_native.h>
#include <ATen/ops/_foreach_lerp_native.h>
#include <ATen/ops/_foreach_mul_native.h>
#include <ATen/ops/_foreach_neg_native.h>
#include <ATen/ops/_foreach_norm_native.h>
#include <ATen/ops/_foreach_reciprocal_native.h>
#include <ATen/ops/_foreach_sqrt_native.h>
#include <ATen/ops/_foreach_sub_native.h>
#include <ATen/ops/_foreach_zero_native.h>
#include <NPUNativeFunctions.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace at::native::npu {
namespace {

using Lists = std::initializer_list<TensorList>;
using Tensors = std::vector<Tensor>;

// Whether one command may take the lists: see the top of this file.
bool uniform(Lists lists) {
  const TensorList first = *lists.begin();
  if (first.empty()) {
    return false;
  }
  const Tensor& like = first[0];
  if (!isFloatingType(like.scalar_type())) {
    return false;
  }
  for (const TensorList& list : lists) {
    if (list.size() != first.size()) {
      return false;
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const Tensor& t = list[i];
      if (t.device() != like.device() || t.scalar_type() != like.scalar_type() || t.numel() == 0 ||
          t.sizes() != first[i].sizes() || !same_order(t, first[i])) {
        return false;
      }
    }
  }
  return like.is_privateuseone();
}

bool has(const char* ir) { return !lacks(ir); }

bool real(const Scalar& s) { return !s.isComplex(); }
bool matches(TensorList self, ArrayRef<Scalar> numbers) {
  return numbers.size() == self.size() && std::all_of(numbers.begin(), numbers.end(), real);
}

// Issues lists in order, then numbers, then the outputs.
void issue(const char* ir, Lists lists, ArrayRef<Scalar> numbers, TensorList outputs) {
  DeviceOf guard(outputs[0]);
  OpCommand cmd;
  cmd.Name(ir);
  for (const TensorList& list : lists) {
    for (const Tensor& t : list) {
      cmd.Input(in_memory_order(t));
    }
  }
  for (const Scalar& number : numbers) {
    cmd.Input(number, kDouble);
  }
  for (const Tensor& t : outputs) {
    cmd.Output(in_memory_order(t));
  }
  cmd.Run();
}

Tensors fresh(TensorList like) {
  Tensors out;
  out.reserve(like.size());
  for (const Tensor& t : like) {
    out.push_back(empty_preserved(t, t.scalar_type()));
  }
  return out;
}

Tensors functional(const char* ir, Lists lists, ArrayRef<Scalar> numbers) {
  Tensors out = fresh(*lists.begin());
  issue(ir, lists, numbers, out);
  return out;
}

void in_place(const char* ir, Lists lists, ArrayRef<Scalar> numbers) { issue(ir, lists, numbers, *lists.begin()); }

}  // namespace

// Below, the functional and the in-place form of each operator.

Tensors foreach_add_list(TensorList self, TensorList other, const Scalar& alpha) {
  if (uniform({self, other}) && real(alpha)) return functional("ForeachAddList", {self, other}, alpha);
  return foreach_tensor_add_list_kernel_slow(self, other, alpha);
}

void foreach_add_list_(TensorList self, TensorList other, const Scalar& alpha) {
  if (uniform({self, other}) && real(alpha)) return in_place("ForeachAddList", {self, other}, alpha);
  foreach_tensor_add_list_kernel_slow_(self, other, alpha);
}

Tensors foreach_sub_list(TensorList self, TensorList other, const Scalar& alpha) {
  if (uniform({self, other}) && real(alpha)) return functional("ForeachSubList", {self, other}, alpha);
  return foreach_tensor_sub_list_kernel_slow(self, other, alpha);
}

void foreach_sub_list_(TensorList self, TensorList other, const Scalar& alpha) {
  if (uniform({self, other}) && real(alpha)) return in_place("ForeachSubList", {self, other}, alpha);
  foreach_tensor_sub_list_kernel_slow_(self, other, alpha);
}

Tensors foreach_mul_list(TensorList self, TensorList other) {
  if (uniform({self, other})) return functional("ForeachMulList", {self, other}, {});
  return foreach_tensor_mul_list_kernel_slow(self, other);
}

void foreach_mul_list_(TensorList self, TensorList other) {
  if (uniform({self, other})) return in_place("ForeachMulList", {self, other}, {});
  foreach_tensor_mul_list_kernel_slow_(self, other);
}

Tensors foreach_div_list(TensorList self, TensorList other) {
  if (uniform({self, other})) return functional("ForeachDivList", {self, other}, {});
  return foreach_tensor_div_list_kernel_slow(self, other);
}

void foreach_div_list_(TensorList self, TensorList other) {
  if (uniform({self, other})) return in_place("ForeachDivList", {self, other}, {});
  foreach_tensor_div_list_kernel_slow_(self, other);
}

Tensors foreach_add_scalar(TensorList self, const Scalar& scalar) {
  if (uniform({self}) && real(scalar)) return functional("ForeachAddScalar", {self}, scalar);
  return foreach_tensor_add_scalar_kernel_slow(self, scalar);
}

void foreach_add_scalar_(TensorList self, const Scalar& scalar) {
  if (uniform({self}) && real(scalar)) return in_place("ForeachAddScalar", {self}, scalar);
  foreach_tensor_add_scalar_kernel_slow_(self, scalar);
}

Tensors foreach_mul_scalar(TensorList self, const Scalar& scalar) {
  if (uniform({self}) && real(scalar)) return functional("ForeachMulScalar", {self}, scalar);
  return foreach_tensor_mul_scalar_kernel_slow(self, scalar);
}

void foreach_mul_scalar_(TensorList self, const Scalar& scalar) {
  if (uniform({self}) && real(scalar)) return in_place("ForeachMulScalar", {self}, scalar);
  foreach_tensor_mul_scalar_kernel_slow_(self, scalar);
}

Tensors foreach_div_scalar(TensorList self, const Scalar& scalar) {
  if (uniform({self}) && real(scalar)) return functional("ForeachDivScalar", {self}, scalar);
  return foreach_tensor_div_scalar_kernel_slow(self, scalar);
}

void foreach_div_scalar_(TensorList self, const Scalar& scalar) {
  if (uniform({self}) && real(scalar)) return in_place("ForeachDivScalar", {self}, scalar);
  foreach_tensor_div_scalar_kernel_slow_(self, scalar);
}

Tensors foreach_add_scalars(TensorList self, ArrayRef<Scalar> scalars) {
  if (has("ForeachAddScalarList") && uniform({self}) && matches(self, scalars)) {
    return functional("ForeachAddScalarList", {self}, scalars);
  }
  return foreach_tensor_add_scalarlist_kernel_slow(self, scalars);
}

void foreach_add_scalars_(TensorList self, ArrayRef<Scalar> scalars) {
  if (has("ForeachAddScalarList") && uniform({self}) && matches(self, scalars)) {
    return in_place("ForeachAddScalarList", {self}, scalars);
  }
  foreach_tensor_add_scalarlist_kernel_slow_(self, scalars);
}

Tensors foreach_mul_scalars(TensorList self, ArrayRef<Scalar> scalars) {
  if (has("ForeachMulScalarList") && uniform({self}) && matches(self, scalars)) {
    return functional("ForeachMulScalarList", {self}, scalars);
  }
  return foreach_tensor_mul_scalarlist_kernel_slow(self, scalars);
}

void foreach_mul_scalars_(TensorList self, ArrayRef<Scalar> scalars) {
  if (has("ForeachMulScalarList") && uniform({self}) && matches(self, scalars)) {
    return in_place("ForeachMulScalarList", {self}, scalars);
  }
  foreach_tensor_mul_scalarlist_kernel_slow_(self, scalars);
}

Tensors foreach_div_scalars(TensorList self, ArrayRef<Scalar> scalars) {
  if (has("ForeachDivScalarList") && uniform({self}) && matches(self, scalars)) {
    return functional("ForeachDivScalarList", {self}, scalars);
  }
  return foreach_tensor_div_scalarlist_kernel_slow(self, scalars);
}

void foreach_div_scalars_(TensorList self, ArrayRef<Scalar> scalars) {
  if (has("ForeachDivScalarList") && uniform({self}) && matches(self, scalars)) {
    return in_place("ForeachDivScalarList", {self}, scalars);
  }
  foreach_tensor_div_scalarlist_kernel_slow_(self, scalars);
}

Tensors foreach_sqrt(TensorList self) {
  if (uniform({self})) return functional("ForeachSqrt", {self}, {});
  return foreach_tensor_sqrt_slow(self);
}

void foreach_sqrt_(TensorList self) {
  if (uniform({self})) return in_place("ForeachSqrt", {self}, {});
  foreach_tensor_sqrt_slow_(self);
}

Tensors foreach_neg(TensorList self) {
  if (uniform({self})) return functional("ForeachNeg", {self}, {});
  return foreach_tensor_neg_slow(self);
}

void foreach_neg_(TensorList self) {
  if (uniform({self})) return in_place("ForeachNeg", {self}, {});
  foreach_tensor_neg_slow_(self);
}

Tensors foreach_reciprocal(TensorList self) {
  if (has("ForeachReciprocal") && uniform({self})) {
    return functional("ForeachReciprocal", {self}, {});
  }
  return foreach_tensor_reciprocal_slow(self);
}

void foreach_reciprocal_(TensorList self) {
  if (has("ForeachReciprocal") && uniform({self})) {
    return in_place("ForeachReciprocal", {self}, {});
  }
  foreach_tensor_reciprocal_slow_(self);
}

Tensors foreach_addcmul_scalar(TensorList self, TensorList a, TensorList b, const Scalar& value) {
  if (uniform({self, a, b}) && real(value)) return functional("ForeachAddcmulScalar", {self, a, b}, value);
  return foreach_tensor_addcmul_scalar_slow(self, a, b, value);
}

void foreach_addcmul_scalar_(TensorList self, TensorList a, TensorList b, const Scalar& value) {
  if (uniform({self, a, b}) && real(value)) return in_place("ForeachAddcmulScalar", {self, a, b}, value);
  foreach_tensor_addcmul_scalar_slow_(self, a, b, value);
}

void foreach_addcmul_scalars_(TensorList self, TensorList a, TensorList b, ArrayRef<Scalar> values) {
  if (has("ForeachAddcmulScalarList") && uniform({self, a, b}) && matches(self, values)) {
    return in_place("ForeachAddcmulScalarList", {self, a, b}, values);
  }
  foreach_tensor_addcmul_scalarlist_slow_(self, a, b, values);
}

Tensors foreach_addcdiv_scalar(TensorList self, TensorList a, TensorList b, const Scalar& value) {
  if (uniform({self, a, b}) && real(value)) return functional("ForeachAddcdivScalar", {self, a, b}, value);
  return foreach_tensor_addcdiv_scalar_slow(self, a, b, value);
}

void foreach_addcdiv_scalar_(TensorList self, TensorList a, TensorList b, const Scalar& value) {
  if (uniform({self, a, b}) && real(value)) return in_place("ForeachAddcdivScalar", {self, a, b}, value);
  foreach_tensor_addcdiv_scalar_slow_(self, a, b, value);
}

void foreach_addcdiv_scalars_(TensorList self, TensorList a, TensorList b, ArrayRef<Scalar> values) {
  if (has("ForeachAddcdivScalarList") && uniform({self, a, b}) && matches(self, values)) {
    return in_place("ForeachAddcdivScalarList", {self, a, b}, values);
  }
  foreach_tensor_addcdiv_scalarlist_slow_(self, a, b, values);
}

Tensors foreach_lerp_scalar(TensorList self, TensorList end, const Scalar& weight) {
  if (uniform({self, end}) && real(weight)) return functional("ForeachLerpScalar", {self, end}, weight);
  return foreach_tensor_lerp_list_kernel_slow(self, end, weight);
}

void foreach_lerp_scalar_(TensorList self, TensorList end, const Scalar& weight) {
  if (uniform({self, end}) && real(weight)) return in_place("ForeachLerpScalar", {self, end}, weight);
  foreach_tensor_lerp_list_kernel_slow_(self, end, weight);
}

void foreach_zero_(TensorList self) {
  if (!has("ForeachZeroInplace") || !uniform({self})) {
    return foreach_tensor_zero_slow_(self);
  }
  in_place("ForeachZeroInplace", {self}, {});
}

void foreach_copy_(TensorList self, TensorList src, bool non_blocking) {
  if (!uniform({self, src})) {
    return foreach_tensor_copy_list_kernel_slow_(self, src, non_blocking);
  }
  issue("ForeachCopy", {src}, {}, self);
}

Tensors foreach_norm_scalar(TensorList self, const Scalar& ord, std::optional<ScalarType> dtype) {
  // Every norm is a single value, so the tensors need not share a shape.
  if (!uniform({self}) || !real(ord)) {
    return foreach_tensor_norm_slow(self, ord, dtype);
  }
  Tensors out;
  out.reserve(self.size());
  for (const Tensor& t : self) {
    out.push_back(empty_npu(IntArrayRef{}, dtype.value_or(t.scalar_type()), t.device()));
  }
  issue("ForeachNorm", {self}, ord, out);
  return out;
}

}  // namespace at::native::npu
