// Distributions that the CPU draws from.

#include "exec/definition/aten.h"

namespace acl_sim {
namespace {

// The kernel would look for a sample for ever.
void check_counts(OpContext& c) { TORCH_CHECK(!c.in(0).isnan().any().item<bool>(), "a count is not a number"); }

SIM_ATEN(StatelessPoisson, "poisson");
SIM_ATEN_CHECKED(StatelessBinomial, "binomial", check_counts);
SIM_ATEN(StatelessRandomGamma, "_standard_gamma");
SIM_ATEN(RandomGammaGrad, "_standard_gamma_grad");
SIM_ATEN(StatelessRandomDirichlet, "_sample_dirichlet");
SIM_ATEN(DirichletGrad, "_dirichlet_grad");

}  // namespace
}  // namespace acl_sim
