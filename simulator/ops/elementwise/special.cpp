// Special functions: Bessel functions and orthogonal polynomials, which CANN has no operators for.

#include "ops/common.h"

namespace acl_sim {
namespace {

using at::Tensor;

#define SPECIAL(TYPE, FN)                                                             \
  SIM_OP(TYPE).inputs(1).dtypes(kFloatTypes).ai_cpu().costly().run([](OpContext& c) { \
    const Tensor x = c.in_any(0);                                                     \
    Tensor y = out_for(c, x);                                                         \
    at::special_##FN##_out(y, x);                                                     \
  })

// x and the degree, which broadcast.
#define POLYNOMIAL(TYPE, FN)                                                          \
  SIM_OP(TYPE).inputs(2).dtypes(kFloatTypes).ai_cpu().costly().run([](OpContext& c) { \
    Tensor y = c.out(0);                                                              \
    const Tensor x = c.in(0), n = c.in(1);                                            \
    at::special_##FN##_out(y, x, n);                                                  \
  })

SPECIAL(AiryAi, airy_ai);
SPECIAL(BesselJ0, bessel_j0);
SPECIAL(BesselJ1, bessel_j1);
SPECIAL(BesselY0, bessel_y0);
SPECIAL(BesselY1, bessel_y1);
SPECIAL(ModifiedBesselI0, modified_bessel_i0);
SPECIAL(ModifiedBesselI1, modified_bessel_i1);
SPECIAL(ModifiedBesselK0, modified_bessel_k0);
SPECIAL(ModifiedBesselK1, modified_bessel_k1);
SPECIAL(ScaledModifiedBesselK0, scaled_modified_bessel_k0);
SPECIAL(ScaledModifiedBesselK1, scaled_modified_bessel_k1);
SPECIAL(SphericalBesselJ0, spherical_bessel_j0);

POLYNOMIAL(ChebyshevPolynomialT, chebyshev_polynomial_t);
POLYNOMIAL(ChebyshevPolynomialU, chebyshev_polynomial_u);
POLYNOMIAL(ChebyshevPolynomialV, chebyshev_polynomial_v);
POLYNOMIAL(ChebyshevPolynomialW, chebyshev_polynomial_w);
POLYNOMIAL(HermitePolynomialH, hermite_polynomial_h);
POLYNOMIAL(HermitePolynomialHe, hermite_polynomial_he);
POLYNOMIAL(LaguerrePolynomialL, laguerre_polynomial_l);
POLYNOMIAL(LegendrePolynomialP, legendre_polynomial_p);
POLYNOMIAL(ShiftedChebyshevPolynomialT, shifted_chebyshev_polynomial_t);
POLYNOMIAL(ShiftedChebyshevPolynomialU, shifted_chebyshev_polynomial_u);
POLYNOMIAL(ShiftedChebyshevPolynomialV, shifted_chebyshev_polynomial_v);
POLYNOMIAL(ShiftedChebyshevPolynomialW, shifted_chebyshev_polynomial_w);

}  // namespace
}  // namespace acl_sim
