#pragma once
// Philox4x32-10 as a function of (key, counter): element i of a draw is word i % 4 of block offset + i / 4, so numbers
// depend on the seed and offset alone, never on how the work was split.

#include <array>
#include <cmath>
#include <cstdint>

namespace acl_sim {

inline std::array<uint32_t, 4> philox_block(uint64_t seed, uint64_t offset, uint64_t block) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  std::array<uint32_t, 4> v = {static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32),
                               static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * v[0], p1 = uint64_t{0xCD9E8D57} * v[2];
    v = {static_cast<uint32_t>(p1 >> 32) ^ v[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ v[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return v;
}

// [0, 1) with the precision of a float's mantissa.
inline float unit_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }
// [0, 1) with the precision of a double's mantissa.
inline double unit_double(uint32_t high, uint32_t low) {
  return static_cast<double>(((uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

}  // namespace acl_sim
