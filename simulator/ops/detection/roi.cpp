// Features of regions of interest as object detectors pool them: aligned (averages of sampled points) and whole
// pixels (maxima), plain and position-sensitive, with gradients. Regions are rows of image, x0, y0, x1, y1; the scale
// from regions to pixels is a float64 input, since attributes are fp32. Half-precision data is computed in fp32.

#include "ops/detection/roi.h"

#include <ATen/Parallel.h>

#include <limits>

namespace acl_sim {
namespace {

using at::Tensor;
using roi::Params;
using roi::Points;
using roi::Window;

template <class F>
void by_dtype(const Tensor& t, const F& f) {
  t.scalar_type() == at::kDouble ? f(double{}) : f(float{});
}

// Channels in parallel: each writes to planes of its own.
template <class F>
void for_channels(int64_t channels, int64_t work, const F& f) {
  at::parallel_for(0, channels, std::max<int64_t>(1, 16384 / std::max<int64_t>(work, 1)),
                   [&](int64_t from, int64_t to) {
                     for (int64_t k = from; k < to; ++k) {
                       f(k);
                     }
                   });
}

// inputs features, rois, scale
void align(OpContext& c) {
  const Tensor x = widen(c.in(0)), rois = widen(c.in(1));
  const Params p(c, 2);
  const Tensor y = at::zeros(c.out(0).sizes(), x.options());
  const int64_t channels = x.size(1), area = x.size(2) * x.size(3), cells = p.cells();
  by_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rois.size(0); ++r) {
      const T* region = rois.const_data_ptr<T>() + 5 * r;
      const T* image = x.const_data_ptr<T>() + roi::image_of(region, x.size(0)) * channels * area;
      const Points<T> points(p, region, x.size(2), x.size(3), p.aligned, !p.aligned);
      T* out = y.mutable_data_ptr<T>() + r * channels * cells;
      for_channels(channels, cells * points.per_cell, [&](int64_t k) {
        for (int64_t cell = 0; cell < cells; ++cell) {
          out[k * cells + cell] = points.sum(cell, image + k * area) / std::max<T>(points.count, 1);
        }
      });
    }
  });
  c.out(0).copy_(y);
}

// inputs grad, rois, scale
void align_grad(OpContext& c) {
  const Tensor dy = widen(c.in(0)), rois = widen(c.in(1));
  const Params p(c, 2);
  const Tensor dx = at::zeros(c.out(0).sizes(), dy.options());
  const int64_t channels = dx.size(1), area = dx.size(2) * dx.size(3), cells = p.cells();
  by_dtype(dy, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rois.size(0); ++r) {
      const T* region = rois.const_data_ptr<T>() + 5 * r;
      T* image = dx.mutable_data_ptr<T>() + roi::image_of(region, dx.size(0)) * channels * area;
      const Points<T> points(p, region, dx.size(2), dx.size(3), p.aligned, !p.aligned);
      const T* in = dy.const_data_ptr<T>() + r * channels * cells;
      for_channels(channels, cells * points.per_cell, [&](int64_t k) {
        for (int64_t cell = 0; cell < cells; ++cell) {
          points.spread(cell, in[k * cells + cell] / points.count, image + k * area);
        }
      });
    }
  });
  c.out(0).copy_(dx);
}

// inputs features, rois, scale; outputs y, channel_mapping. Cell i of output channel k has input channel k * cells + i.
void ps_align(OpContext& c) {
  const Tensor x = widen(c.in(0)), rois = widen(c.in(1));
  const Params p(c, 2);
  const Tensor y = at::empty(c.out(0).sizes(), x.options());
  const int64_t channels = x.size(1), area = x.size(2) * x.size(3), cells = p.cells();
  by_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rois.size(0); ++r) {
      const T* region = rois.const_data_ptr<T>() + 5 * r;
      const T* image = x.const_data_ptr<T>() + roi::image_of(region, x.size(0)) * channels * area;
      const Points<T> points(p, region, x.size(2), x.size(3), true, false);
      T* out = y.mutable_data_ptr<T>() + r * channels;
      for_channels(channels, points.per_cell,
                   [&](int64_t k) { out[k] = points.sum(k % cells, image + k * area) / points.count; });
    }
  });
  c.out(0).copy_(y);
  c.out(1).copy_(at::arange(channels, at::kInt).view({1, channels / cells, p.rows, p.columns}));
}

// inputs grad, rois, scale
void ps_align_grad(OpContext& c) {
  const Tensor dy = widen(c.in(0)), rois = widen(c.in(1));
  const Params p(c, 2);
  const Tensor dx = at::zeros(c.out(0).sizes(), dy.options());
  const int64_t channels = dx.size(1), area = dx.size(2) * dx.size(3), cells = p.cells();
  by_dtype(dy, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rois.size(0); ++r) {
      const T* region = rois.const_data_ptr<T>() + 5 * r;
      T* image = dx.mutable_data_ptr<T>() + roi::image_of(region, dx.size(0)) * channels * area;
      const Points<T> points(p, region, dx.size(2), dx.size(3), true, false);
      const T* in = dy.const_data_ptr<T>() + r * channels;
      for_channels(channels, points.per_cell,
                   [&](int64_t k) { points.spread(k % cells, in[k] / points.count, image + k * area); });
    }
  });
  c.out(0).copy_(dx);
}

// inputs features, rois, scale; outputs y, argmax (position within the plane, -1 for an empty cell)
void pool(OpContext& c) {
  const Tensor x = widen(c.in(0)), rois = widen(c.in(1));
  const Params p(c, 2);
  const Tensor y = at::zeros(c.out(0).sizes(), x.options());
  const Tensor argmax = c.out(1).fill_(-1);
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3), cells = p.cells();
  by_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rois.size(0); ++r) {
      const T* region = rois.const_data_ptr<T>() + 5 * r;
      const T* image = x.const_data_ptr<T>() + roi::image_of(region, x.size(0)) * channels * height * width;
      const std::vector<Window> windows = roi::windows(p, region, true, height, width);
      T* out = y.mutable_data_ptr<T>() + r * channels * cells;
      int* place = argmax.mutable_data_ptr<int>() + r * channels * cells;
      for_channels(channels, height * width, [&](int64_t k) {
        const T* plane = image + k * height * width;
        for (int64_t cell = 0; cell < cells; ++cell) {
          const Window& w = windows[static_cast<size_t>(cell)];
          T best = w.empty() ? T(0) : -std::numeric_limits<float>::max();
          for (int64_t i = w.top; i < w.bottom; ++i) {
            for (int64_t j = w.left; j < w.right; ++j) {
              if (plane[i * width + j] > best) {
                best = plane[i * width + j];
                place[k * cells + cell] = static_cast<int>(i * width + j);
              }
            }
          }
          out[k * cells + cell] = best;
        }
      });
    }
  });
  c.out(0).copy_(y);
}

// inputs grad, rois, argmax
void pool_grad(OpContext& c) {
  const Tensor dy = widen(c.in(0)), rois = widen(c.in(1)), argmax = c.in(2);
  const Tensor dx = at::zeros(c.out(0).sizes(), dy.options());
  const int64_t channels = dx.size(1), area = dx.size(2) * dx.size(3), cells = dy.size(2) * dy.size(3);
  by_dtype(dy, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rois.size(0); ++r) {
      T* image =
          dx.mutable_data_ptr<T>() + roi::image_of(rois.const_data_ptr<T>() + 5 * r, dx.size(0)) * channels * area;
      const T* in = dy.const_data_ptr<T>() + r * channels * cells;
      const int* place = argmax.const_data_ptr<int>() + r * channels * cells;
      for_channels(channels, cells, [&](int64_t k) {
        for (int64_t i = k * cells; i < (k + 1) * cells; ++i) {
          if (place[i] >= 0 && place[i] < area) {
            image[k * area + place[i]] += in[i];
          }
        }
      });
    }
  });
  c.out(0).copy_(dx);
}

// inputs features, rois, scale; outputs y, channel_mapping. torchvision leaves the last row and column out here, and
// only here.
void ps_pool(OpContext& c) {
  const Tensor x = widen(c.in(0)), rois = widen(c.in(1));
  const Params p(c, 2);
  const Tensor y = at::zeros(c.out(0).sizes(), x.options());
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3), cells = p.cells();
  by_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rois.size(0); ++r) {
      const T* region = rois.const_data_ptr<T>() + 5 * r;
      const T* image = x.const_data_ptr<T>() + roi::image_of(region, x.size(0)) * channels * height * width;
      const std::vector<Window> windows = roi::windows(p, region, false, height - 1, width - 1);
      T* out = y.mutable_data_ptr<T>() + r * channels;
      for_channels(channels, height * width / cells + 1, [&](int64_t k) {
        const Window& w = windows[static_cast<size_t>(k % cells)];
        if (w.empty()) {
          return;
        }
        T sum = 0;
        for (int64_t i = w.top; i < w.bottom; ++i) {
          for (int64_t j = w.left; j < w.right; ++j) {
            sum += image[(k * height + i) * width + j];
          }
        }
        out[k] = sum / static_cast<T>(w.area());
      });
    }
  });
  c.out(0).copy_(y);
  c.out(1).copy_(at::arange(channels, at::kInt).view({1, channels / cells, p.rows, p.columns}));
}

// inputs grad, rois, scale
void ps_pool_grad(OpContext& c) {
  const Tensor dy = widen(c.in(0)), rois = widen(c.in(1));
  const Params p(c, 2);
  const Tensor dx = at::zeros(c.out(0).sizes(), dy.options());
  const int64_t channels = dx.size(1), height = dx.size(2), width = dx.size(3), cells = p.cells();
  by_dtype(dy, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rois.size(0); ++r) {
      const T* region = rois.const_data_ptr<T>() + 5 * r;
      T* image = dx.mutable_data_ptr<T>() + roi::image_of(region, dx.size(0)) * channels * height * width;
      const std::vector<Window> windows = roi::windows(p, region, false, height, width);
      const T* in = dy.const_data_ptr<T>() + r * channels;
      for_channels(channels, height * width / cells + 1, [&](int64_t k) {
        const Window& w = windows[static_cast<size_t>(k % cells)];
        for (int64_t i = w.top; !w.empty() && i < w.bottom; ++i) {
          for (int64_t j = w.left; j < w.right; ++j) {
            image[(k * height + i) * width + j] += in[k] / static_cast<T>(w.area());
          }
        }
      });
    }
  });
  c.out(0).copy_(dx);
}

const std::vector<std::string> kSampled = {"pooled_height:int", "pooled_width:int", "sample_num:int", "aligned:bool"};
const std::vector<std::string> kCells = {"pooled_height:int", "pooled_width:int"};
const DtypeSet kF = kFloatTypes;

SIM_OP(RoiAlignV2).costly().inputs(3).dtypes(kF).attrs(kSampled).run(align);
SIM_OP(RoiAlignV2Grad).costly().inputs(3).dtypes(kF).attrs(kSampled).run(align_grad);
SIM_OP(PSROIAlign).costly().inputs(3).outputs(2).dtypes(kF).attrs(kSampled).run(ps_align);
SIM_OP(PSROIAlignGrad).costly().inputs(3).dtypes(kF).attrs(kSampled).run(ps_align_grad);
SIM_OP(RoiPoolingWithArgMax).costly().inputs(3).outputs(2).dtypes(kF).attrs(kCells).run(pool);
SIM_OP(RoiPoolingGradWithArgMax).costly().inputs(3).dtypes({kF, kF, dtype_bit(ACL_INT32)}).run(pool_grad);
SIM_OP(PSROIPooling).costly().inputs(3).outputs(2).dtypes(kF).attrs(kCells).run(ps_pool);
SIM_OP(PSROIPoolingGrad).costly().inputs(3).dtypes(kF).attrs(kCells).run(ps_pool_grad);

}  // namespace
}  // namespace acl_sim
