#pragma once
// fp16 and bf16 elements inside vector loops: read as fp32, written with one rounding to nearest even. Without branches
// or intrinsics, so that the compiler makes vectors of them for whatever unit SIM_MULTIVERSION compiles for.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cstdint>

#define SIM_INLINE inline __attribute__((always_inline))

namespace acl_sim {

SIM_INLINE float read_element(const float* p) { return *p; }
SIM_INLINE void write_element(float* p, float value) { *p = value; }

SIM_INLINE float read_element(const c10::BFloat16* p) {
  return std::bit_cast<float>(static_cast<uint32_t>(p->x) << 16);
}

SIM_INLINE void write_element(c10::BFloat16* p, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  p->x = static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

// fp32 has 112 more exponents below one than fp16, and as many above the largest.
SIM_INLINE float read_element(const c10::Half* p) {
  constexpr uint32_t kExponents = 112U << 23, kFp16Exponent = 0x1FU << 23, kSmallestNormal = 113U << 23;
  const uint32_t sign = static_cast<uint32_t>(p->x & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(p->x & 0x7FFF) << 13;
  const uint32_t exponent = magnitude & kFp16Exponent;
  const uint32_t normal = magnitude + (exponent == kFp16Exponent ? 2 * kExponents : kExponents);
  // A subnormal is the fraction alone: with an exponent in front of it, what that adds is taken away again.
  const float subnormal = std::bit_cast<float>(magnitude + kSmallestNormal) - std::bit_cast<float>(kSmallestNormal);
  return std::bit_cast<float>((exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : normal) | sign);
}

SIM_INLINE void write_element(c10::Half* p, float value) {
  constexpr uint32_t kExponents = 112U << 23, kSmallestNormal = 113U << 23, kTooLarge = 143U << 23;
  // Its last digit is that of an fp16 subnormal, so adding it rounds there.
  constexpr uint32_t kRounder = 126U << 23;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t normal = (magnitude - kExponents + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  const float moved = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kRounder);
  const uint32_t subnormal = std::bit_cast<uint32_t>(moved) - kRounder;
  const uint32_t infinite = magnitude > 0x7F800000 ? 0x7E00 : 0x7C00;
  const uint32_t finite = magnitude < kSmallestNormal ? subnormal : normal;
  p->x = static_cast<uint16_t>((magnitude >= kTooLarge ? infinite : finite) | (bits >> 16 & 0x8000));
}

}  // namespace acl_sim
