// See conv_rows.h. Work is split over output rows (forward), images (data gradient) or columns of the filter (filter
// gradient), never over the summed dimension, so that threads have no partial sums to join.

#include "ops/convolution/conv_rows.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "ops/convolution/conv_gather.h"
#include "ops/matmul/gemm.h"

namespace acl_sim {
namespace {

struct FreeDeleter {
  void operator()(float* p) const { std::free(p); }
};

// Per-thread buffer that grows to the largest request and is kept: chunks are small and come in every step.
float* chunk_buffer(int64_t floats) {
  static thread_local std::unique_ptr<float[], FreeDeleter> buffer;
  static thread_local int64_t capacity = 0;
  if (floats > capacity) {
    const size_t bytes = (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64;
    buffer.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    capacity = buffer ? floats : 0;
    if (!buffer) {
      throw std::bad_alloc();
    }
  }
  return buffer.get();
}

// Adds rows of receptive-field gradients back to the input pixels they came from.
void scatter_add(const ConvShape& s, const float* rows_grad, int64_t row0, int64_t rows, float* dx) {
  const int64_t width = s.depth();
  Pixel p = pixel_at(s, row0);
  for (int64_t r = 0; r < rows; ++r, advance(s, p), rows_grad += width) {
    for_runs(s, p, [&](int64_t column, int64_t, int64_t offset, int64_t lo, int64_t hi) {
      const float* from = rows_grad + column;
      float* to = dx + offset;
      for (int64_t i = lo * s.c; i < hi * s.c; ++i) {
        to[i] += from[i];
      }
    });
  }
}

// Rows per chunk: long enough to pay for packing the filter again, short enough to stay near the core.
int64_t chunk_rows(int64_t depth) { return std::clamp<int64_t>((int64_t{1} << 19) / depth, 256, 512); }

void fill_bias(const float* bias, int64_t rows, int64_t o, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(y + r * o, bias, o * sizeof(float));
  }
}

}  // namespace

void conv_forward(const ConvShape& s, const float* x, const float* w, const float* bias, float* y) {
  const int64_t depth = s.depth(), rows = s.rows();
  const float beta = bias != nullptr ? 1.0F : 0.0F;
  const int64_t threads = at::get_num_threads();
  const int64_t share = (rows + threads - 1) / threads;
  at::parallel_for(0, rows, share, [&](int64_t begin, int64_t end) {
    if (bias != nullptr) {
      fill_bias(bias, end - begin, s.o, y + begin * s.o);
    }
    if (s.pointwise()) {
      gemm_nt(end - begin, s.o, depth, x + begin * depth, depth, w, depth, beta, y + begin * s.o, s.o);
      return;
    }
    const int64_t step = std::min(chunk_rows(depth), end - begin);
    float* chunk = chunk_buffer(step * depth);
    for (int64_t r = begin; r < end; r += step) {
      const int64_t count = std::min(step, end - r);
      gather(s, x, r, count, 0, depth, chunk);
      gemm_nt(count, s.o, depth, chunk, depth, w, depth, beta, y + r * s.o, s.o);
    }
  });
}

namespace {

// Any stride: gradients of whole receptive fields, added to the pixels they cover; one image belongs to one thread.
void backward_data_by_scatter(const ConvShape& s, const float* dy, const float* w, float* dx) {
  const int64_t depth = s.depth(), image = s.oh * s.ow;
  const int64_t threads = at::get_num_threads();
  at::parallel_for(0, s.n, (s.n + threads - 1) / threads, [&](int64_t begin, int64_t end) {
    std::memset(dx + begin * s.h * s.w * s.c, 0, (end - begin) * s.h * s.w * s.c * sizeof(float));
    const int64_t step = std::min(chunk_rows(depth), (end - begin) * image);
    float* chunk = chunk_buffer(step * depth);
    for (int64_t r = begin * image; r < end * image; r += step) {
      const int64_t count = std::min(step, end * image - r);
      gemm_nn(count, depth, s.o, dy + r * s.o, s.o, w, depth, 0.0F, chunk, depth);
      scatter_add(s, chunk, r, count, dx);
    }
  });
}

}  // namespace

void conv_backward_data(const ConvShape& s, const float* dy, const float* w, float* dx) {
  if (s.pointwise()) {
    const int64_t rows = s.rows(), threads = at::get_num_threads();
    at::parallel_for(0, rows, (rows + threads - 1) / threads, [&](int64_t begin, int64_t end) {
      gemm_nn(end - begin, s.c, s.o, dy + begin * s.o, s.o, w, s.c, 0.0F, dx + begin * s.c, s.c);
    });
    return;
  }
  backward_data_by_scatter(s, dy, w, dx);
}

void conv_backward_filter(const ConvShape& s, const float* x, const float* dy, float* dw) {
  const int64_t depth = s.depth(), rows = s.rows();
  const int64_t threads = at::get_num_threads();
  const int64_t share = ((depth + threads - 1) / threads + 15) / 16 * 16;
  at::parallel_for(0, depth, share, [&](int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    if (s.pointwise()) {
      gemm_tn(s.o, width, rows, dy, s.o, x + begin, s.c, 0.0F, dw + begin, depth);
      return;
    }
    const int64_t step = std::min(chunk_rows(width), rows);
    float* chunk = chunk_buffer(step * width);
    for (int64_t r = 0; r < rows; r += step) {
      const int64_t count = std::min(step, rows - r);
      gather(s, x, r, count, begin, end, chunk);
      gemm_tn(s.o, width, count, dy + r * s.o, s.o, chunk, width, r == 0 ? 0.0F : 1.0F, dw + begin, depth);
    }
  });
}

}  // namespace acl_sim
