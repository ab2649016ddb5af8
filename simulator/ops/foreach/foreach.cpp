// Operators over lists of tensors. Inputs come list after list: x[0..n), y[0..n), ...; n is the number of outputs. Each
// tensor keeps the layout of a channels-last operand, so parameters take over their gradients' layout when written.

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

// Tensor k of every list, brought to one layout. An operand that is already in the layout is not copied.
struct Row {
  at::Tensor x, y, z, out;
};

bool any_rows(OpContext& c, size_t k, size_t lists, size_t n) {
  for (size_t l = 0; l < lists; ++l) {
    if (stored_channels_last(c.in_any(l * n + k))) {
      return true;
    }
  }
  return false;
}

Row row_of(OpContext& c, size_t k, size_t lists) {
  const size_t n = c.num_outputs();
  const bool rows = any_rows(c, k, lists, n);
  const auto operand = [&](size_t l) { return rows ? c.in_channels_last(l * n + k) : c.in(l * n + k); };
  Row r;
  r.x = operand(0);
  if (lists > 1) {
    r.y = operand(1);
  }
  if (lists > 2) {
    r.z = operand(2);
  }
  r.out = rows ? c.out_channels_last(k) : c.out(k);
  return r;
}

// F(row, attrs of the k-th tensor)
template <size_t Lists, class F>
void for_each(OpContext& c, const F& f) {
  const size_t n = c.num_outputs();
  if (c.num_inputs() < Lists * n) {
    refuse("lists of different lengths");
  }
  for (size_t k = 0; k < n; ++k) {
    Row r = row_of(c, k, Lists);
    f(r, k);
  }
}

// The scalar operand that follows the lists.
template <size_t Lists>
at::Scalar scalar(OpContext& c) {
  return c.in_scalar(Lists * c.num_outputs());
}

// One host number per tensor, following the lists.
template <size_t Lists>
at::Scalar scalar_at(OpContext& c, size_t k) {
  return c.in_scalar(Lists * c.num_outputs() + k);
}

void add_list(OpContext& c) {
  const at::Scalar alpha = scalar<2>(c);
  for_each<2>(c, [&](Row& r, size_t) { at::add_out(r.out, r.x, r.y, alpha); });
}
void sub_list(OpContext& c) {
  const at::Scalar alpha = scalar<2>(c);
  for_each<2>(c, [&](Row& r, size_t) { at::sub_out(r.out, r.x, r.y, alpha); });
}
void mul_list(OpContext& c) {
  for_each<2>(c, [](Row& r, size_t) { at::mul_out(r.out, r.x, r.y); });
}
void div_list(OpContext& c) {
  for_each<2>(c, [](Row& r, size_t) { at::div_out(r.out, r.x, r.y); });
}
void maximum_list(OpContext& c) {
  for_each<2>(c, [](Row& r, size_t) { at::maximum_out(r.out, r.x, r.y); });
}
void minimum_list(OpContext& c) {
  for_each<2>(c, [](Row& r, size_t) { at::minimum_out(r.out, r.x, r.y); });
}
void add_scalar(OpContext& c) {
  const at::Scalar s = scalar<1>(c);
  for_each<1>(c, [&](Row& r, size_t) { at::add_out(r.out, r.x, at::scalar_tensor(s, at::kDouble), 1); });
}
void mul_scalar(OpContext& c) {
  const at::Scalar s = scalar<1>(c);
  for_each<1>(c, [&](Row& r, size_t) { at::mul_out(r.out, r.x, at::scalar_tensor(s, at::kDouble)); });
}
void div_scalar(OpContext& c) {
  const at::Scalar s = scalar<1>(c);
  for_each<1>(c, [&](Row& r, size_t) { at::div_out(r.out, r.x, at::scalar_tensor(s, at::kDouble)); });
}
void add_scalar_list(OpContext& c) {
  for_each<1>(
      c, [&](Row& r, size_t k) { at::add_out(r.out, r.x, at::scalar_tensor(scalar_at<1>(c, k), at::kDouble), 1); });
}
void mul_scalar_list(OpContext& c) {
  for_each<1>(c,
              [&](Row& r, size_t k) { at::mul_out(r.out, r.x, at::scalar_tensor(scalar_at<1>(c, k), at::kDouble)); });
}
void div_scalar_list(OpContext& c) {
  for_each<1>(c,
              [&](Row& r, size_t k) { at::div_out(r.out, r.x, at::scalar_tensor(scalar_at<1>(c, k), at::kDouble)); });
}
void sqrt_list(OpContext& c) {
  for_each<1>(c, [](Row& r, size_t) { at::sqrt_out(r.out, r.x); });
}
void neg_list(OpContext& c) {
  for_each<1>(c, [](Row& r, size_t) { at::neg_out(r.out, r.x); });
}
void reciprocal_list(OpContext& c) {
  for_each<1>(c, [](Row& r, size_t) { at::reciprocal_out(r.out, r.x); });
}
void zero_list(OpContext& c) {
  for (size_t k = 0; k < c.num_outputs(); ++k) {
    c.out(k).zero_();
  }
}
void copy_list(OpContext& c) {
  for_each<1>(c, [](Row& r, size_t) { r.out.copy_(r.x); });
}
void lerp_scalar(OpContext& c) {
  const at::Scalar weight = scalar<2>(c);
  for_each<2>(c, [&](Row& r, size_t) { at::lerp_out(r.out, r.x, r.y, weight); });
}
void addcmul_scalar(OpContext& c) {
  const at::Scalar value = scalar<3>(c);
  for_each<3>(c, [&](Row& r, size_t) { at::addcmul_out(r.out, r.x, r.y, r.z, value); });
}
void addcdiv_scalar(OpContext& c) {
  const at::Scalar value = scalar<3>(c);
  for_each<3>(c, [&](Row& r, size_t) { at::addcdiv_out(r.out, r.x, r.y, r.z, value); });
}
void addcdiv_scalar_list(OpContext& c) {
  for_each<3>(c, [&](Row& r, size_t k) { at::addcdiv_out(r.out, r.x, r.y, r.z, scalar_at<3>(c, k)); });
}

void addcmul_scalar_list(OpContext& c) {
  for_each<3>(c, [&](Row& r, size_t k) { at::addcmul_out(r.out, r.x, r.y, r.z, scalar_at<3>(c, k)); });
}

// The norm of each tensor; any layout will do.
void norm_list(OpContext& c) {
  const at::Scalar order = scalar<1>(c);
  for (size_t k = 0; k < c.num_outputs(); ++k) {
    at::Tensor norm = c.out(k);
    norm.copy_(at::linalg_vector_norm(c.in_any(k), order, at::OptionalIntArrayRef(), false, norm.scalar_type()));
  }
}

#define FOREACH(TYPE, FN) SIM_OP(TYPE).inputs(1, kManyInputs).outputs(1, kManyInputs).dtypes(kAllTypes).run(FN)

FOREACH(ForeachAddList, add_list);
FOREACH(ForeachSubList, sub_list);
FOREACH(ForeachMulList, mul_list);
FOREACH(ForeachDivList, div_list);
FOREACH(ForeachMaximumList, maximum_list);
FOREACH(ForeachMinimumList, minimum_list);
FOREACH(ForeachAddScalar, add_scalar);
FOREACH(ForeachMulScalar, mul_scalar);
FOREACH(ForeachDivScalar, div_scalar);
FOREACH(ForeachAddScalarList, add_scalar_list);
FOREACH(ForeachMulScalarList, mul_scalar_list);
FOREACH(ForeachDivScalarList, div_scalar_list);
FOREACH(ForeachSqrt, sqrt_list);
FOREACH(ForeachNeg, neg_list);
FOREACH(ForeachReciprocal, reciprocal_list);
FOREACH(ForeachZeroInplace, zero_list);
FOREACH(ForeachCopy, copy_list);
FOREACH(ForeachLerpScalar, lerp_scalar);
FOREACH(ForeachAddcmulScalar, addcmul_scalar);
FOREACH(ForeachAddcdivScalar, addcdiv_scalar);
FOREACH(ForeachAddcmulScalarList, addcmul_scalar_list);
FOREACH(ForeachAddcdivScalarList, addcdiv_scalar_list);
FOREACH(ForeachNorm, norm_list);

}  // namespace
}  // namespace acl_sim
