#pragma once
// fp32 convolutions over channels-last memory as matrix products: each output pixel is a row, its receptive field is
// gathered in small chunks that stay in cache. Covers one group of any kernel, stride, padding and dilation.

#include <cstdint>

namespace acl_sim {

struct ConvShape {
  int64_t n, c, h, w;  // input
  int64_t o, oh, ow;   // output
  int64_t kh, kw, sh, sw, ph, pw, dh, dw;

  int64_t rows() const { return n * oh * ow; }
  int64_t depth() const { return kh * kw * c; }
  // Input rows are the receptive fields themselves.
  bool pointwise() const { return kh == 1 && kw == 1 && sh == 1 && sw == 1 && ph == 0 && pw == 0; }
};

// x[n, h, w, c], w[o, kh, kw, c], bias[o] or null -> y[n, oh, ow, o]
void conv_forward(const ConvShape& s, const float* x, const float* w, const float* bias, float* y);
// dy[n, oh, ow, o], w[o, kh, kw, c] -> dx[n, h, w, c]
void conv_backward_data(const ConvShape& s, const float* dy, const float* w, float* dx);
// x[n, h, w, c], dy[n, oh, ow, o] -> dw[o, kh, kw, c]
void conv_backward_filter(const ConvShape& s, const float* x, const float* dy, float* dw);

}  // namespace acl_sim
