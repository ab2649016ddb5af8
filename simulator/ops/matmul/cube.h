#pragma once
// Operands of the cube unit as it multiplies them.

#include "ops/nn_util.h"

namespace acl_sim {

// fp32 rounded to 11 bits of fraction, to nearest and ties to even, in the same strides.
at::Tensor round_to_hf32(const at::Tensor& t);

// fp16 and bf16 as fp32, fp32 rounded where Note [Cube precision] says so, everything else as it is.
inline at::Tensor cube_operand(const OpContext& c, const at::Tensor& t) {
  const CubeRounding rounding = c.rounding();
  if (rounding == CubeRounding::None || !t.defined() || t.scalar_type() != at::kFloat) return widen(t);
  return rounding == CubeRounding::Hf32 ? round_to_hf32(t) : t.to(at::kHalf).to(at::kFloat);
}

// Whether libtorch's products and convolutions of bf16 are the cube unit's: operands multiplied as they are by the
// CPU's own instructions, sums in fp32, one rounding. Otherwise bf16 is widened.
bool multiplies_bf16();

}  // namespace acl_sim
