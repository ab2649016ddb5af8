// See turn.h. Tile by tile, so that both sides stay in the first-level cache; tiles of 4-byte elements in registers.

#include "exec/layout/turn.h"

#include <algorithm>
#include <array>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(SIM_PORTABLE)
#include <immintrin.h>
#define SIM_HAS_AVX2 1
#endif

namespace acl_sim {
namespace {

constexpr int64_t kTile = 16;

template <class T>
void turn_tile(const T* __restrict from, T* __restrict to, int64_t rows, int64_t columns, int64_t high, int64_t wide) {
  for (int64_t c = 0; c < wide; ++c) {
    for (int64_t r = 0; r < high; ++r) to[c * rows + r] = from[r * columns + c];
  }
}

#ifdef SIM_HAS_AVX2
// 8 x 8 elements.
__attribute__((target("avx2"))) inline void turn_block(const float* from, float* to, int64_t rows, int64_t columns) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(from + i * columns);
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xEE);
    a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * rows, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * rows, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}

__attribute__((target("avx2"))) void turn_whole_tile(const float* from, float* to, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < kTile; r += 8) {
    for (int64_t c = 0; c < kTile; c += 8) turn_block(from + r * columns + c, to + c * rows + r, rows, columns);
  }
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#endif

template <class T>
void turn_rows(const T* from, T* to, int64_t rows, int64_t columns, int64_t first, int64_t last) {
#ifdef SIM_HAS_AVX2
  const bool in_registers = sizeof(T) == sizeof(float) && has_avx2();
#endif
  for (int64_t r = first; r < last; r += kTile) {
    const int64_t high = std::min(kTile, last - r);
    for (int64_t c = 0; c < columns; c += kTile) {
      const int64_t wide = std::min(kTile, columns - c);
      const T* const source = from + r * columns + c;
      T* const target = to + c * rows + r;
#ifdef SIM_HAS_AVX2
      if (in_registers && high == kTile && wide == kTile) {
        turn_whole_tile(reinterpret_cast<const float*>(source), reinterpret_cast<float*>(target), rows, columns);
        continue;
      }
#endif
      turn_tile(source, target, rows, columns, high, wide);
    }
  }
}

}  // namespace

void turn(const void* from, void* to, int64_t rows, int64_t columns, int64_t first, int64_t last,
          size_t element_bytes) {
  const auto run = [&]<class T>(T) {
    turn_rows(static_cast<const T*>(from), static_cast<T*>(to), rows, columns, first, last);
  };
  switch (element_bytes) {
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    case 8:
      return run(uint64_t{});
    default:
      return run(std::array<uint64_t, 2>{});
  }
}

}  // namespace acl_sim
