#pragma once
// fp16 and bf16 to fp32 and back without branches, so that loops over them become vector code: the compiler does not
// do that for its own half type, nor for c10's.

#include <bit>
#include <cstdint>

namespace hccl_sim {

// Functions of another target are inlined into a version for a vector unit only by force.
#define HCCL_INLINE [[gnu::always_inline]] inline

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

HCCL_INLINE float widen(Half value) {
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7FFFU) << 13;
  // Exponents of fp16 count from 15, those of fp32 from 127; a product with 2^112 moves one to the other, and makes
  // normal numbers of subnormal ones.
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const uint32_t special = magnitude | 0x7F800000U;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000U) << 16;
  return std::bit_cast<float>((magnitude >= 0x0F800000U ? special : finite) | sign);
}

HCCL_INLINE void narrow(float value, Half& result) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7FFFFFFFU;
  // To the nearest, ties to even: half a unit of the last kept place is added before the rest is cut off.
  const uint32_t normal = (magnitude + 0xC8000FFFU + ((magnitude >> 13) & 1U)) >> 13;
  // The sum with 0.5 rounds to multiples of 2^-24, the unit of subnormal numbers.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  const uint32_t large = magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U;
  const uint32_t kept = magnitude < 0x38800000U ? small : magnitude < 0x47800000U ? normal : large;
  result.bits = static_cast<uint16_t>(kept | (bits >> 16 & 0x8000U));
}

HCCL_INLINE float widen(BFloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

HCCL_INLINE void narrow(float value, BFloat16& result) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
  result.bits = static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC0U : rounded);
}

}  // namespace hccl_sim
