#pragma once
// The receptive fields of output pixels, gathered from channels-last memory into rows.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ops/convolution/conv_rows.h"

namespace acl_sim {

struct Pixel {
  int64_t n, y, x;
};

inline Pixel pixel_at(const ConvShape& s, int64_t row) { return {row / (s.oh * s.ow), row / s.ow % s.oh, row % s.ow}; }

inline void advance(const ConvShape& s, Pixel& p) {
  if (++p.x == s.ow) {
    p.x = 0;
    if (++p.y == s.oh) {
      p.y = 0;
      ++p.n;
    }
  }
}

// Walks the receptive field of one output pixel as runs of adjacent input pixels: visit(column, run, offset, lo, hi)
// where columns [column, column + run * c) of the gathered row are input elements [offset, ...), of which pixels
// [lo, hi) of the run lie inside the image.
template <class Visit>
inline void for_runs(const ConvShape& s, const Pixel& p, const Visit& visit) {
  const int64_t run = s.dw == 1 ? s.kw : 1;
  for (int64_t ky = 0; ky < s.kh; ++ky) {
    const int64_t iy = p.y * s.sh - s.ph + ky * s.dh;
    const bool row_inside = iy >= 0 && iy < s.h;
    for (int64_t kx = 0; kx < s.kw; kx += run) {
      const int64_t ix = p.x * s.sw - s.pw + kx * s.dw;
      const int64_t lo = row_inside ? std::clamp<int64_t>(-ix, 0, run) : run;
      const int64_t hi = row_inside ? std::clamp<int64_t>(s.w - ix, lo, run) : run;
      visit((ky * s.kw + kx) * s.c, run, ((p.n * s.h + iy) * s.w + ix) * s.c, lo, hi);
    }
  }
}

// Gathers columns [col0, col1) of output rows [row0, row0 + rows) into out, densely.
template <class T>
void gather(const ConvShape& s, const T* x, int64_t row0, int64_t rows, int64_t col0, int64_t col1, T* out) {
  const int64_t width = col1 - col0;
  Pixel p = pixel_at(s, row0);
  for (int64_t r = 0; r < rows; ++r, advance(s, p), out += width) {
    for_runs(s, p, [&](int64_t column, int64_t run, int64_t offset, int64_t lo, int64_t hi) {
      const int64_t first = std::max(column, col0), last = std::min(column + run * s.c, col1);
      if (first >= last) {
        return;
      }
      const int64_t in0 = std::clamp(column + lo * s.c, first, last), in1 = std::clamp(column + hi * s.c, in0, last);
      if (in0 > first) {
        std::memset(out + first - col0, 0, (in0 - first) * sizeof(T));
      }
      if (in1 > in0) {
        std::memcpy(out + in0 - col0, x + offset + (in0 - column), (in1 - in0) * sizeof(T));
      }
      if (last > in1) {
        std::memset(out + in1 - col0, 0, (last - in1) * sizeof(T));
      }
    });
  }
}

}  // namespace acl_sim
