// Element-wise operators of one and two operands: each is the ATen kernel of the same name on aliases of device memory.

#include "exec/definition/aten.h"
#include "ops/common.h"
#include "ops/tiny.h"

#include <ATen/CPUFunctions.h>

namespace acl_sim {
namespace {

using at::Tensor;

// One operand. FN is the name of an at::FN_out(out, self).
#define UNARY(TYPE, FN, DTYPES)                                \
  SIM_OP(TYPE).inputs(1).dtypes(DTYPES).run([](OpContext& c) { \
    const Tensor x = c.in_any(0);                              \
    Tensor y = out_for(c, x);                                  \
    at::cpu::FN##_out(y, x);                                   \
  })

// Two operands that broadcast. FN is the name of an at::FN_out(out, a, b).
#define BINARY(TYPE, FN, DTYPES)                               \
  SIM_OP(TYPE).inputs(2).dtypes(DTYPES).run([](OpContext& c) { \
    const auto [a, b] = two(c);                                \
    Tensor y = out_for(c, a, b);                               \
    at::cpu::FN##_out(y, a, b);                                \
  })

// The operands of a binary operator; a single host value adapts to the other's dtype.
std::pair<Tensor, Tensor> two(OpContext& c) {
  Tensor a = c.in_any(0);
  Tensor b = operand(c, 1, a.scalar_type());
  if (a.dim() == 0 && b.dim() != 0) a = operand(c, 0, b.scalar_type());
  return {a, b};
}

const DtypeSet kFloatAndComplex =
    kFloatTypes | dtype_bit(ACL_COMPLEX64) | dtype_bit(ACL_COMPLEX128) | dtype_bit(ACL_COMPLEX32);
const DtypeSet kBool = dtype_bit(ACL_BOOL);
const DtypeSet kRealAndBool = kRealTypes | kBool;
const DtypeSet kIntAndBool = kIntTypes | kBool;

UNARY(Exp, exp, kFloatAndComplex);
UNARY(Exp2, exp2, kFloatAndComplex);
UNARY(Expm1, expm1, kFloatAndComplex);
UNARY(Log1p, log1p, kFloatAndComplex);
UNARY(Rsqrt, rsqrt, kFloatAndComplex);
UNARY(Reciprocal, reciprocal, kFloatAndComplex);
UNARY(Sin, sin, kFloatAndComplex);
UNARY(Cos, cos, kFloatAndComplex);
UNARY(Tan, tan, kFloatAndComplex);
UNARY(Asin, asin, kFloatAndComplex);
UNARY(Acos, acos, kFloatAndComplex);
UNARY(Atan, atan, kFloatAndComplex);
UNARY(Sinh, sinh, kFloatAndComplex);
UNARY(Cosh, cosh, kFloatAndComplex);
UNARY(Tanh, tanh, kFloatAndComplex);
UNARY(Asinh, asinh, kFloatAndComplex);
UNARY(Acosh, acosh, kFloatAndComplex);
UNARY(Atanh, atanh, kFloatAndComplex);
UNARY(Sigmoid, sigmoid, kFloatAndComplex);
UNARY(Sinc, sinc, kFloatAndComplex);
UNARY(Erf, erf, kFloatTypes);
UNARY(Erfc, erfc, kFloatTypes);
UNARY(Erfinv, erfinv, kFloatTypes);
UNARY(Digamma, digamma, kFloatTypes);
UNARY(Lgamma, lgamma, kFloatTypes);
UNARY(BesselI0, i0, kFloatTypes);
UNARY(BesselI0e, special_i0e, kFloatTypes);
UNARY(BesselI1, special_i1, kFloatTypes);
UNARY(BesselI1e, special_i1e, kFloatTypes);
UNARY(Ndtri, special_ndtri, kFloatTypes);
UNARY(Entr, special_entr, kFloatTypes);
UNARY(LogNdtr, special_log_ndtr, kFloatTypes);
UNARY(Erfcx, special_erfcx, kFloatTypes);
UNARY(Frac, frac, kFloatTypes);
UNARY(Sqrt, sqrt, kFloatAndComplex);  // ATen's is not exactly rounded everywhere: no loop of our own
UNARY(Neg, neg, kNumericTypes).tiny(tiny::unary<tiny::Neg>);
UNARY(Abs, abs, kNumericTypes).tiny(tiny::unary<tiny::Abs>);
UNARY(Angle, angle, kComputeTypes);
UNARY(Sgn, sgn, kComputeTypes);
UNARY(Sign, sign, kRealAndBool);
UNARY(Floor, floor, kRealTypes);
UNARY(Ceil, ceil, kRealTypes);
UNARY(Trunc, trunc, kRealTypes);
UNARY(Invert, bitwise_not, kIntAndBool);
UNARY(Signbit, signbit, kRealAndBool);
UNARY(IsPosInf, isposinf, kRealAndBool);
UNARY(IsNegInf, isneginf, kRealAndBool);
UNARY(LogicalNot, logical_not, kComputeTypes);

BINARY(Add, add, kComputeTypes).tiny(tiny::binary<tiny::Add>);
BINARY(Sub, sub, kNumericTypes).tiny(tiny::binary<tiny::Sub>);
BINARY(Mul, mul, kComputeTypes).tiny(tiny::binary<tiny::Mul>);
BINARY(FloorMod, remainder, kRealTypes);
BINARY(Mod, fmod, kRealTypes);
// A single exponent has ways of its own (squares, roots); of integers it may be negative, which they refuse.
void power(OpContext& c) {
  const auto [x, exponent] = two(c);
  Tensor y = out_for(c, x, exponent);
  if (exponent.dim() == 0 && x.dim() > 0 && !at::isIntegralType(exponent.scalar_type(), /*includeBool=*/false)) {
    at::pow_out(y, x, exponent.item());
  } else {
    at::pow_out(y, x, exponent);
  }
}
SIM_OP(Pow).inputs(2).dtypes(kComputeTypes).run(power);
BINARY(Maximum, maximum, kRealAndBool).tiny(tiny::binary<tiny::Maximum>);
BINARY(Minimum, minimum, kRealAndBool).tiny(tiny::binary<tiny::Minimum>);
BINARY(Fmax, fmax, kRealAndBool);
BINARY(Fmin, fmin, kRealAndBool);
BINARY(Atan2, atan2, kFloatTypes);
BINARY(Hypot, hypot, kFloatTypes);
BINARY(Copysign, copysign, kFloatTypes);
BINARY(NextAfter, nextafter, kFloatTypes);
BINARY(LogAddExp, logaddexp, kFloatAndComplex);
BINARY(LogAddExp2, logaddexp2, kFloatAndComplex);
BINARY(Xlogy, xlogy, kFloatTypes);
BINARY(Xlog1py, special_xlog1py, kFloatTypes);
BINARY(Zeta, special_zeta, kFloatTypes);
BINARY(Igamma, igamma, kFloatTypes);
BINARY(Igammac, igammac, kFloatTypes);
BINARY(Heaviside, heaviside, kRealAndBool);
BINARY(Gcd, gcd, kIntTypes);
BINARY(Lcm, lcm, kIntTypes);
BINARY(BitwiseAnd, bitwise_and, kIntAndBool);
BINARY(BitwiseOr, bitwise_or, kIntAndBool);
BINARY(BitwiseXor, bitwise_xor, kIntAndBool);
BINARY(LeftShift, bitwise_left_shift, kIntTypes);
BINARY(RightShift, bitwise_right_shift, kIntTypes);
BINARY(LogicalAnd, logical_and, kComputeTypes);
BINARY(LogicalOr, logical_or, kComputeTypes);
BINARY(LogicalXor, logical_xor, kComputeTypes);
BINARY(Equal, eq, kAllTypes).tiny_to_bool(tiny::compare<tiny::Equal>);
BINARY(NotEqual, ne, kAllTypes).tiny_to_bool(tiny::compare<tiny::NotEqual>);
BINARY(Less, lt, kRealAndBool).tiny_to_bool(tiny::compare<tiny::Less>);
BINARY(LessEqual, le, kRealAndBool).tiny_to_bool(tiny::compare<tiny::LessEqual>);
BINARY(Greater, gt, kRealAndBool).tiny_to_bool(tiny::compare<tiny::Greater>);
BINARY(GreaterEqual, ge, kRealAndBool).tiny_to_bool(tiny::compare<tiny::GreaterEqual>);

UNARY(Conj, conj_physical, kNumericTypes);
BINARY(Complex, complex, kFloatTypes);
BINARY(Polar, polar, kFloatTypes);

// x -> mantissa, exponent
void frexp(OpContext& c) {
  Tensor mantissa = c.out(0), exponent = c.out(1);
  at::cpu::frexp_out(mantissa, exponent, c.in(0));
}
SIM_OP(Frexp).inputs(1).outputs(2).dtypes(kFloatTypes).run(frexp);

void log_base(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  const double base = c.attrs().real("base", -1.0);
  if (base == 2.0) {
    at::cpu::log2_out(y, x);
  } else if (base == 10.0) {
    at::cpu::log10_out(y, x);
  } else {
    at::cpu::log_out(y, x);
    if (base > 0.0) y.div_(std::log(base));
  }
}
SIM_OP(Log).inputs(1).dtypes(kFloatAndComplex).attrs({"base:float"}).run(log_base);

void round_to(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  const int64_t decimals = c.attrs().integer("decimals", 0);
  if (decimals == 0) {
    at::cpu::round_out(y, x);
  } else {
    at::cpu::round_out(y, x, decimals);
  }
}
SIM_OP(Round).inputs(1).dtypes(kRealTypes).attrs({"decimals:int"}).run(round_to);

void polygamma(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  at::cpu::polygamma_out(y, c.attrs().integer("n", 0), x);
}
SIM_OP(Polygamma).costly().inputs(1).dtypes(kFloatTypes).attrs({"n:int"}).require({"n"}).run(polygamma);

std::optional<double> optional_real(OpContext& c, size_t i) {
  if (!c.has_input(i)) return std::nullopt;
  return c.in_scalar(i).toDouble();
}

void nan_to_num(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  at::cpu::nan_to_num_out(y, x, optional_real(c, 1), optional_real(c, 2), optional_real(c, 3));
}
SIM_OP(NanToNumWide).inputs(4).dtypes(kComputeTypes).run(nan_to_num);
SIM_OP(NanToNum)
    .inputs(1)
    .dtypes(kFloatTypes)
    .attrs({"nan:float", "posinf:float", "neginf:float"})
    .require({"nan", "posinf", "neginf"})
    .run([](OpContext& c) {
      const Tensor x = c.in_any(0);
      Tensor y = out_for(c, x);
      at::cpu::nan_to_num_out(y, x, c.attrs().real("nan", 0), c.attrs().real("posinf", 0), c.attrs().real("neginf", 0));
    });

void logit(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  const double eps = number(c, "eps", 1, -1);
  at::cpu::logit_out(y, x, eps < 0 ? std::nullopt : std::optional<double>(eps));
}
SIM_OP(Logit).inputs(1).dtypes(kFloatTypes).attrs({"eps:float"}).run(logit);
SIM_OP(LogitWide).inputs(2).dtypes(kFloatTypes).run(logit);

// y = x1 + alpha * x2
void axpy(OpContext& c) {
  const auto [a, b] = two(c);
  Tensor y = out_for(c, a, b);
  at::cpu::add_out(y, a, b, c.in_scalar(2));
}
SIM_OP(AxpyV2).inputs(3).dtypes(kAllTypes).run(axpy);

void real_div(OpContext& c) {
  const auto [a, b] = two(c);
  Tensor y = out_for(c, a, b);
  if (y.scalar_type() == at::kComplexHalf) {
    y.copy_(at::div(a.to(at::kComplexFloat), b.to(at::kComplexFloat)));
  } else {
    at::cpu::div_out(y, a, b);
  }
}
SIM_OP(RealDiv).inputs(2).dtypes(kFloatAndComplex).tiny(tiny::binary<tiny::Div>).run(real_div);

void floor_div(OpContext& c) {
  const auto [a, b] = two(c);
  Tensor y = out_for(c, a, b);
  at::cpu::div_out(y, a, b, "floor");
}
SIM_OP(FloorDiv).inputs(2).dtypes(kRealTypes).run(floor_div);

void truncate_div(OpContext& c) {
  const auto [a, b] = two(c);
  Tensor y = out_for(c, a, b);
  at::cpu::div_out(y, a, b, "trunc");
}
SIM_OP(TruncateDiv).inputs(2).dtypes(kRealTypes).run(truncate_div);

SIM_ATEN(AddRelu, "_add_relu.Tensor");
SIM_ATEN(AddReluInplace, "_add_relu_.Tensor");
SIM_ATEN(AddReluScalar, "_add_relu.Scalar");
SIM_ATEN(AddReluScalarInplace, "_add_relu_.Scalar");

}  // namespace
}  // namespace acl_sim
