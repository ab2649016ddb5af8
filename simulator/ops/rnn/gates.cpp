// See gates.h. fp32 has its own exponential and tangent, so that loops become vector code; fp64 takes the C library's.

#include "ops/rnn/gates.h"

#include <bit>
#include <cmath>

#include "ops/multiversion.h"

#define SIM_INLINE inline __attribute__((always_inline))

namespace acl_sim {
namespace {

// e to the x within an ulp or so: 2^n times a polynomial over half an octave. Too large gives infinity, NaN stays NaN.
SIM_INLINE float exponential(float x) {
  const float low = x < -87.3F ? -87.3F : x;
  const float bounded = low > 89.0F ? 89.0F : low;
  // Added to this number a float's last bits are the nearest integer.
  const float shift = 12582912.0F;
  const float shifted = bounded * 1.44269504088896341F + shift;
  const float n = shifted - shift;
  const float r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const auto exponent = (std::bit_cast<uint32_t>(shifted) - 0x4B400000U + 127U) << 23U;
  return p * std::bit_cast<float>(exponent);
}

SIM_INLINE float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }
SIM_INLINE double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

SIM_INLINE float tangent(float x) {
  const float size = std::fabs(x);
  const float large = 1.0F - 2.0F / (exponential(2.0F * size) + 1.0F);
  // Near zero the difference above would lose digits.
  const float s = x * x;
  float p = -5.70498872745e-3F;
  p = p * s + 2.06390887954e-2F;
  p = p * s - 5.37397155531e-2F;
  p = p * s + 1.33314422036e-1F;
  p = p * s - 3.33332819422e-1F;
  const float small = size + size * s * p;
  return std::copysign(size < 0.625F ? small : large, x);
}
SIM_INLINE double tangent(double x) { return std::tanh(x); }

template <class T>
SIM_INLINE void lstm(int64_t rows, int64_t n, T* __restrict gates, T* __restrict h, T* __restrict c,
                     T* __restrict cells, T* __restrict y) {
  for (int64_t r = 0; r < rows; ++r) {
    T* __restrict in = gates + r * 4 * n;
    T* __restrict forget = in + n;
    T* __restrict candidate = forget + n;
    T* __restrict out = candidate + n;
    for (int64_t j = 0; j < n; ++j) {
      const T i = sigmoid(in[j]), f = sigmoid(forget[j]), g = tangent(candidate[j]), o = sigmoid(out[j]);
      const T cell = f * c[r * n + j] + i * g, state = o * tangent(cell);
      in[j] = i, forget[j] = f, candidate[j] = g, out[j] = o;
      c[r * n + j] = cell, cells[r * n + j] = cell;
      h[r * n + j] = state, y[r * n + j] = state;
    }
  }
}

template <class T>
SIM_INLINE void gru(int64_t rows, int64_t n, const T* __restrict from_input, const T* __restrict from_hidden,
                    const T* __restrict bias, T* __restrict h, T* __restrict saved, T* __restrict y) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* __restrict a = from_input + r * 3 * n;
    const T* __restrict b = from_hidden + r * 3 * n;
    T* __restrict kept = saved + r * 4 * n;
    for (int64_t j = 0; j < n; ++j) {
      const T reset = sigmoid(a[j] + (b[j] + bias[j]));
      const T update = sigmoid(a[n + j] + (b[n + j] + bias[n + j]));
      const T part = b[2 * n + j] + bias[2 * n + j];
      const T fresh = tangent(a[2 * n + j] + reset * part);
      const T state = fresh + update * (h[r * n + j] - fresh);
      kept[j] = reset, kept[n + j] = update, kept[2 * n + j] = fresh, kept[3 * n + j] = part;
      h[r * n + j] = state, y[r * n + j] = state;
    }
  }
}

template <class T>
SIM_INLINE void rnn(int64_t count, bool relu, T* __restrict h, T* __restrict y) {
  if (relu) {
    for (int64_t j = 0; j < count; ++j) {
      const T state = y[j] < 0 ? T(0) : y[j];
      h[j] = state, y[j] = state;
    }
  } else {
    for (int64_t j = 0; j < count; ++j) {
      const T state = tangent(y[j]);
      h[j] = state, y[j] = state;
    }
  }
}

template <class T>
SIM_INLINE void lstm_grad(int64_t rows, int64_t n, const T* __restrict gates, const T* __restrict cells,
                          const T* __restrict c_before, const T* __restrict dy, const T* __restrict dh,
                          T* __restrict dc, T* __restrict dgates) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* __restrict g = gates + r * 4 * n;
    T* __restrict d = dgates + r * 4 * n;
    for (int64_t j = 0; j < n; ++j) {
      const int64_t k = r * n + j;
      const T in = g[j], forget = g[n + j], candidate = g[2 * n + j], out = g[3 * n + j];
      const T squashed = tangent(cells[k]), by_state = dh[k] + dy[k];
      const T by_cell = dc[k] + by_state * out * (1 - squashed * squashed);
      d[j] = by_cell * candidate * in * (1 - in);
      d[n + j] = by_cell * c_before[k] * forget * (1 - forget);
      d[2 * n + j] = by_cell * in * (1 - candidate * candidate);
      d[3 * n + j] = by_state * squashed * out * (1 - out);
      dc[k] = by_cell * forget;
    }
  }
}

template <class T>
SIM_INLINE void gru_grad(int64_t rows, int64_t n, const T* __restrict saved, const T* __restrict h_before,
                         const T* __restrict dy, T* __restrict dh, T* __restrict dinput, T* __restrict dhidden) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* __restrict s = saved + r * 4 * n;
    T* __restrict a = dinput + r * 3 * n;
    T* __restrict b = dhidden + r * 3 * n;
    for (int64_t j = 0; j < n; ++j) {
      const int64_t k = r * n + j;
      const T reset = s[j], update = s[n + j], fresh = s[2 * n + j], part = s[3 * n + j], d = dh[k] + dy[k];
      const T by_update = d * (h_before[k] - fresh) * update * (1 - update);
      const T by_fresh = d * (1 - update) * (1 - fresh * fresh);
      const T by_reset = by_fresh * part * reset * (1 - reset);
      a[j] = by_reset, a[n + j] = by_update, a[2 * n + j] = by_fresh;
      b[j] = by_reset, b[n + j] = by_update, b[2 * n + j] = by_fresh * reset;
      dh[k] = d * update;
    }
  }
}

template <class T>
SIM_INLINE void rnn_grad(int64_t count, bool relu, const T* __restrict y, const T* __restrict dy,
                         const T* __restrict dh, T* __restrict dgates) {
  if (relu) {
    for (int64_t j = 0; j < count; ++j) dgates[j] = y[j] <= 0 ? T(0) : dh[j] + dy[j];
  } else {
    for (int64_t j = 0; j < count; ++j) dgates[j] = (dh[j] + dy[j]) * (1 - y[j] * y[j]);
  }
}

}  // namespace

#define SIM_GATES(T, VERSIONS)                                                                                         \
  VERSIONS void lstm_rows(int64_t rows, int64_t hidden, T* gates, T* h, T* c, T* cells, T* y) {                        \
    lstm(rows, hidden, gates, h, c, cells, y);                                                                         \
  }                                                                                                                    \
  VERSIONS void gru_rows(int64_t rows, int64_t hidden, const T* from_input, const T* from_hidden, const T* bias, T* h, \
                         T* saved, T* y) {                                                                             \
    gru(rows, hidden, from_input, from_hidden, bias, h, saved, y);                                                     \
  }                                                                                                                    \
  VERSIONS void rnn_rows(int64_t rows, int64_t hidden, bool relu, T* h, T* y) { rnn(rows * hidden, relu, h, y); }      \
  VERSIONS void lstm_grad_rows(int64_t rows, int64_t hidden, const T* gates, const T* cells, const T* c_before,        \
                               const T* dy, const T* dh, T* dc, T* dgates) {                                           \
    lstm_grad(rows, hidden, gates, cells, c_before, dy, dh, dc, dgates);                                               \
  }                                                                                                                    \
  VERSIONS void gru_grad_rows(int64_t rows, int64_t hidden, const T* saved, const T* h_before, const T* dy, T* dh,     \
                              T* dinput, T* dhidden) {                                                                 \
    gru_grad(rows, hidden, saved, h_before, dy, dh, dinput, dhidden);                                                  \
  }                                                                                                                    \
  VERSIONS void rnn_grad_rows(int64_t rows, int64_t hidden, bool relu, const T* y, const T* dy, const T* dh,           \
                              T* dgates) {                                                                             \
    rnn_grad(rows * hidden, relu, y, dy, dh, dgates);                                                                  \
  }

SIM_GATES(float, SIM_MULTIVERSION)
SIM_GATES(double, )

}  // namespace acl_sim
