#pragma once
// What the element-wise families share: operands that may be single host values, and outputs that follow the layout
// of the operand whose shape they have.

#include "exec/definition/op.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

namespace acl_sim {

// Input i in the device's layout. A single value of another dtype takes part as a Python number would: it does not
// change the dtype that the operator computes in.
inline at::Tensor operand(OpContext& c, size_t i, at::ScalarType computed) {
  at::Tensor t = c.in_any(i);
  if (t.dim() == 0 && t.scalar_type() != computed) t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

// Output 0 for operands that broadcast to its shape.
// A number that is an attribute, or, of an operator whose numbers fp32 does not hold (TYPEWide), the given input.
inline double number(OpContext& c, const char* name, size_t input, double otherwise) {
  return c.has_input(input) ? c.in_scalar(input).toDouble() : c.attrs().real(name, otherwise);
}

inline at::Tensor out_for(OpContext& c, const at::Tensor& a) { return c.out_as(0, a); }
inline at::Tensor out_for(OpContext& c, const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() == b.sizes()) return c.out_as(0, a.is_contiguous() ? b : a);
  const at::DimVector sizes = at::infer_size_dimvector(a.sizes(), b.sizes());
  if (a.sizes() == at::IntArrayRef(sizes)) return c.out_as(0, a);
  if (b.sizes() == at::IntArrayRef(sizes)) return c.out_as(0, b);
  return c.out(0);
}
inline at::Tensor out_for(OpContext& c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& d) {
  const at::DimVector ab = at::infer_size_dimvector(a.sizes(), b.sizes());
  const at::DimVector sizes = at::infer_size_dimvector(ab, d.sizes());
  for (const at::Tensor* t : {&a, &b, &d}) {
    if (t->sizes() == at::IntArrayRef(sizes) && !t->is_contiguous()) return c.out_as(0, *t);
  }
  return c.out(0);
}

// The target of an operator that writes only parts of it: input i and output 0 are the same memory. The input is
// asked for first, since asking for the output makes the device forget another layout it was stored in.
inline at::Tensor in_place(OpContext& c, size_t i = 0) {
  const at::Tensor before = c.in(i);
  at::Tensor target = c.out(0);
  if (before.data_ptr() != target.data_ptr()) target.copy_(before);
  return target;
}

}  // namespace acl_sim
