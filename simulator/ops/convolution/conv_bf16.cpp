// See conv_bf16.h.

#include "ops/convolution/conv_bf16.h"

#include <ATen/CPUFunctions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "exec/definition/aten.h"
#include "ops/convolution/conv_gather.h"

namespace acl_sim {
namespace {

using at::Tensor;
using Element = c10::BFloat16;

// Below this many multiplications libtorch's products of bf16 have other kernels, which round on the way.
constexpr int64_t kLeast = 1 << 16;

bool large_enough(const ConvShape& s) { return s.rows() * s.depth() * s.o >= kLeast; }

// A filter of one pixel and no padding, with any stride.
bool one_pixel(const ConvShape& s) { return s.kh == 1 && s.kw == 1 && s.ph == 0 && s.pw == 0; }

// Memory as a matrix: an image's pixels by its channels, a filter's outputs by its receptive field.
Tensor matrix(const Tensor& channels_last, int64_t rows) {
  return channels_last.permute({0, 2, 3, 1}).view({rows, channels_last.numel() / rows});
}

// The pixels that a filter of one pixel sees, as [n, oh, ow, c].
Tensor seen(const ConvShape& s, const Tensor& image) {
  return image.permute({0, 2, 3, 1}).slice(1, 0, INT64_MAX, s.sh).slice(2, 0, INT64_MAX, s.sw);
}

// The receptive fields, one a row.
Tensor fields(const ConvShape& s, const Tensor& image) {
  if (s.pointwise()) return matrix(image, s.rows());
  if (one_pixel(s)) return seen(s, image).reshape({s.rows(), s.c});
  const Tensor rows = at::empty({s.rows(), s.depth()}, image.options());
  const auto* from = image.const_data_ptr<Element>();
  auto* to = rows.mutable_data_ptr<Element>();
  at::parallel_for(0, s.rows(), std::max<int64_t>(1, (1 << 15) / s.depth()), [&](int64_t begin, int64_t end) {
    gather(s, from, begin, end - begin, 0, s.depth(), to + begin * s.depth());
  });
  return rows;
}

void multiply(Tensor target, const Tensor& a, const Tensor& b) { at::cpu::mm_out(target, a, b); }

// The convolution of dy with the turned filter that gives dx; for a stride of one.
ConvShape turned(const ConvShape& s) {
  ConvShape t = s;
  t.c = s.o, t.h = s.oh, t.w = s.ow;
  t.o = s.c, t.oh = s.h, t.ow = s.w;
  t.ph = (s.kh - 1) * s.dh - s.ph, t.pw = (s.kw - 1) * s.dw - s.pw;
  return t;
}

}  // namespace

bool bf16_forward(const ConvShape& s, const Tensor& x, const Tensor& w, const Tensor& y, std::optional<bool> wanted) {
  // Gathered fields are read back from memory; short of a quarter of their width, rows are too many to pay for it.
  if (!large_enough(s) || !wanted.value_or(one_pixel(s) || s.rows() * 4 <= s.depth())) return false;
  multiply(matrix(y, s.rows()), fields(s, x), matrix(w, s.o).t());
  return true;
}

bool bf16_backward_data(const ConvShape& s, const Tensor& dy, const Tensor& w, const Tensor& dx,
                        std::optional<bool> wanted) {
  if (!large_enough(s) || !wanted.value_or(true)) return false;
  if (one_pixel(s)) {
    if (s.pointwise()) {
      multiply(matrix(dx, s.n * s.h * s.w), matrix(dy, s.rows()), matrix(w, s.o));
      return true;
    }
    const Tensor of_seen = at::empty({s.rows(), s.c}, dx.options());
    multiply(of_seen, matrix(dy, s.rows()), matrix(w, s.o));
    dx.zero_();
    seen(s, dx).copy_(of_seen.view({s.n, s.oh, s.ow, s.c}));
    return true;
  }
  const ConvShape t = turned(s);
  if (s.sh != 1 || s.sw != 1 || t.ph < 0 || t.pw < 0 || (!wanted && t.rows() * 4 > t.depth())) return false;
  // [o, c, kh, kw], turned by half and with channels first.
  const Tensor filter = w.flip({2, 3}).permute({1, 2, 3, 0}).reshape({s.c, t.depth()});
  multiply(matrix(dx, t.rows()), fields(t, dy), filter.t());
  return true;
}

bool bf16_backward_filter(const ConvShape& s, const Tensor& x, const Tensor& dy, const Tensor& dw,
                          std::optional<bool> wanted) {
  if (!large_enough(s) || !wanted.value_or(one_pixel(s) || s.rows() <= 2 * s.depth())) return false;
  multiply(matrix(dw, s.o), matrix(dy, s.rows()).t(), fields(s, x));
  return true;
}

}  // namespace acl_sim
