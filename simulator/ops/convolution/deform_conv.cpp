// Convolution over displaced windows: every tap of every window is moved by an offset of its own, sampled with bilinear
// weights (zeros outside), and scaled by a mask if there is one. Offsets are [N, groups * taps * 2, OH, OW], y before
// x; masks [N, groups * taps, OH, OW]. Half-precision data is computed in fp32.

#include <ATen/Parallel.h>

#include <cmath>

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

// Four pixels with their weights, and how the weights change along y and x.
template <class T>
struct Tap {
  int64_t pixel[4] = {0, 0, 0, 0};
  T weight[4] = {0, 0, 0, 0}, by_y[4] = {0, 0, 0, 0}, by_x[4] = {0, 0, 0, 0};
  T mask = 1;

  T read(const T* plane) const {
    return weight[0] * plane[pixel[0]] + weight[1] * plane[pixel[1]] + weight[2] * plane[pixel[2]] +
           weight[3] * plane[pixel[3]];
  }
};

template <class T>
Tap<T> tap_at(T y, T x, int64_t height, int64_t width) {
  Tap<T> t;
  if (!(y > -2 && y < static_cast<T>(height + 1) && x > -2 && x < static_cast<T>(width + 1))) {
    return t;
  }
  const auto top = static_cast<int64_t>(std::floor(y)), left = static_cast<int64_t>(std::floor(x));
  const T dy = y - static_cast<T>(top), dx = x - static_cast<T>(left);
  for (int k = 0; k < 4; ++k) {
    const bool below = k >= 2, right = k % 2 == 1;
    const int64_t i = top + (below ? 1 : 0), j = left + (right ? 1 : 0);
    if (i < 0 || i >= height || j < 0 || j >= width) {
      continue;
    }
    const T wy = below ? dy : 1 - dy, wx = right ? dx : 1 - dx;
    t.pixel[k] = i * width + j;
    t.weight[k] = wy * wx;
    t.by_y[k] = below ? wx : -wx;
    t.by_x[k] = right ? wy : -wy;
  }
  return t;
}

// The operands of one call; x, filter, offsets and mask are inputs first, first + 1, ...
struct Call {
  Call(OpContext& c, size_t first) {
    x = widen(c.in(first));
    w = widen(c.in(first + 1));
    offsets = widen(c.in(first + 2));
    mask = widen(optional_in(c, first + 3));
    stride = pair(c, "strides");
    pad = pair(c, "pads");
    dilation = pair(c, "dilations");
    groups = c.attrs().integer("groups", 1);
    offset_groups = c.attrs().integer("deformable_groups", 1);
    taps = w.size(2) * w.size(3);
    rows = offsets.size(2);
    columns = offsets.size(3);
    plane = rows * columns;
    area = x.size(2) * x.size(3);
  }
  static std::vector<int64_t> pair(OpContext& c, const char* name) {
    std::vector<int64_t> values = c.attrs().integers(name);
    if (values.size() != 2) {
      refuse(std::string("attribute ") + name + " must hold two numbers");
    }
    return values;
  }
  int64_t channels() const { return x.size(1); }
  int64_t channels_per_offset() const { return channels() / offset_groups; }

  // [offset groups * taps * plane] of image n.
  template <class T>
  std::vector<Tap<T>> taps_of(int64_t n) const {
    std::vector<Tap<T>> all(static_cast<size_t>(offset_groups * taps * plane));
    const T* off = offsets.const_data_ptr<T>() + n * 2 * offset_groups * taps * plane;
    const T* scale = mask.defined() ? mask.const_data_ptr<T>() + n * offset_groups * taps * plane : nullptr;
    at::parallel_for(0, offset_groups * taps, 1, [&](int64_t from, int64_t to) {
      for (int64_t gk = from; gk < to; ++gk) {
        const int64_t k = gk % taps, row = k / w.size(3) * dilation[0], column = k % w.size(3) * dilation[1];
        for (int64_t s = 0; s < plane; ++s) {
          const T y = static_cast<T>(s / columns * stride[0] - pad[0] + row) + off[2 * gk * plane + s];
          const T x_at = static_cast<T>(s % columns * stride[1] - pad[1] + column) + off[(2 * gk + 1) * plane + s];
          Tap<T>& t = all[static_cast<size_t>(gk * plane + s)];
          t = tap_at<T>(y, x_at, x.size(2), x.size(3));
          t.mask = scale != nullptr ? scale[gk * plane + s] : T(1);
        }
      }
    });
    return all;
  }

  // The sampled windows of image n: [groups, channels * taps / groups, plane].
  template <class T>
  Tensor columns_of(int64_t n, const std::vector<Tap<T>>& all) const {
    const Tensor result = at::empty({groups, channels() * taps / groups, plane}, x.options());
    const T* image = x.const_data_ptr<T>() + n * channels() * area;
    T* out = result.mutable_data_ptr<T>();
    at::parallel_for(0, channels(), 1, [&](int64_t from, int64_t to) {
      for (int64_t c = from; c < to; ++c) {
        const Tap<T>* t = all.data() + c / channels_per_offset() * taps * plane;
        for (int64_t s = 0; s < taps * plane; ++s) {
          out[c * taps * plane + s] = t[s].mask * t[s].read(image + c * area);
        }
      }
    });
    return result;
  }
  Tensor filter() const { return w.reshape({groups, w.size(0) / groups, channels() * taps / groups}); }

  Tensor x, w, offsets, mask;
  std::vector<int64_t> stride, pad, dilation;
  int64_t groups, offset_groups, taps, rows, columns, plane, area;
};

// inputs x, filter, offsets, mask, bias
template <class T>
void forward(OpContext& c, const Call& call) {
  const Tensor bias = widen(optional_in(c, 4));
  const Tensor y = at::empty({call.x.size(0), call.w.size(0), call.rows, call.columns}, call.x.options());
  for (int64_t n = 0; n < call.x.size(0); ++n) {
    const Tensor windows = call.columns_of<T>(n, call.taps_of<T>(n));
    Tensor target = y.select(0, n).view({call.groups, call.w.size(0) / call.groups, call.plane});
    at::bmm_out(target, call.filter(), windows);
  }
  if (bias.defined()) {
    y.add_(bias.view({1, -1, 1, 1}));
  }
  c.out(0).copy_(y);
}

// The gradients that image n's sampled windows `dcolumns` leave in the operands.
template <class T>
void spread(const Call& call, int64_t n, const std::vector<Tap<T>>& all, const T* dcolumns, const Tensor& dx,
            const Tensor& doffsets, const Tensor& dmask) {
  const int64_t size = call.taps * call.plane, per = call.channels_per_offset();
  const T* image = call.x.const_data_ptr<T>() + n * call.channels() * call.area;
  T* dimage = dx.mutable_data_ptr<T>() + n * call.channels() * call.area;
  at::parallel_for(0, call.channels(), 1, [&](int64_t from, int64_t to) {
    for (int64_t c = from; c < to; ++c) {
      const Tap<T>* t = all.data() + c / per * size;
      for (int64_t s = 0; s < size; ++s) {
        const T grad = dcolumns[c * size + s] * t[s].mask;
        for (int k = 0; k < 4; ++k) {
          dimage[c * call.area + t[s].pixel[k]] += grad * t[s].weight[k];
        }
      }
    }
  });
  T* doff = doffsets.mutable_data_ptr<T>() + n * 2 * call.offset_groups * size;
  T* dscale = dmask.defined() ? dmask.mutable_data_ptr<T>() + n * call.offset_groups * size : nullptr;
  at::parallel_for(0, call.offset_groups * call.taps, 1, [&](int64_t from, int64_t to) {
    for (int64_t gk = from; gk < to; ++gk) {
      const int64_t g = gk / call.taps, k = gk % call.taps;
      for (int64_t s = 0; s < call.plane; ++s) {
        const Tap<T>& t = all[static_cast<size_t>(gk * call.plane + s)];
        T by_y = 0, by_x = 0, by_mask = 0;
        for (int64_t c = g * per; c < (g + 1) * per; ++c) {
          const T* plane = image + c * call.area;
          const T grad = dcolumns[c * size + k * call.plane + s];
          for (int q = 0; q < 4; ++q) {
            by_y += grad * t.by_y[q] * plane[t.pixel[q]];
            by_x += grad * t.by_x[q] * plane[t.pixel[q]];
          }
          by_mask += grad * t.read(plane);
        }
        doff[2 * gk * call.plane + s] = by_y * t.mask;
        doff[(2 * gk + 1) * call.plane + s] = by_x * t.mask;
        if (dscale != nullptr) {
          dscale[gk * call.plane + s] = by_mask;
        }
      }
    }
  });
}

// inputs y_grad, x, filter, offsets, mask; outputs x_grad, filter_grad, offsets_grad, mask_grad
template <class T>
void backward(OpContext& c, const Call& call) {
  const Tensor dy = widen(c.in(0)), filter = call.filter();
  const Tensor dx = at::zeros_like(call.x), dw = at::zeros_like(filter), doffsets = at::empty_like(call.offsets);
  const Tensor dmask = call.mask.defined() ? at::empty_like(call.mask) : Tensor();
  for (int64_t n = 0; n < call.x.size(0); ++n) {
    const std::vector<Tap<T>> all = call.taps_of<T>(n);
    const Tensor grad = dy.select(0, n).reshape({call.groups, call.w.size(0) / call.groups, call.plane});
    dw.baddbmm_(grad, call.columns_of<T>(n, all).transpose(1, 2));
    const Tensor dcolumns = at::bmm(filter.transpose(1, 2), grad).contiguous();
    spread<T>(call, n, all, dcolumns.const_data_ptr<T>(), dx, doffsets, dmask);
  }
  c.out(0).copy_(dx);
  c.out(1).copy_(dw.view(call.w.sizes()));
  c.out(2).copy_(doffsets);
  if (dmask.defined()) {
    c.out(3).copy_(dmask);
  }
}

void deformable_conv(OpContext& c) {
  const Call call(c, 0);
  call.x.scalar_type() == at::kDouble ? forward<double>(c, call) : forward<float>(c, call);
}

void deformable_conv_grad(OpContext& c) {
  const Call call(c, 1);
  call.x.scalar_type() == at::kDouble ? backward<double>(c, call) : backward<float>(c, call);
}

const std::vector<std::string> kAttrs = {"strides:ints", "pads:ints", "dilations:ints", "groups:int",
                                         "deformable_groups:int"};
const std::vector<std::string> kNeeded = {"strides", "pads", "dilations"};

SIM_OP(DeformConv2d)
    .costly()
    .inputs(3, 5)
    .dtypes(kFloatTypes)
    .attrs(kAttrs)
    .require(kNeeded)
    .on_cube()
    .run(deformable_conv);
SIM_OP(DeformConv2dGrad)
    .costly()
    .inputs(4, 5)
    .outputs(3, 4)
    .dtypes(kFloatTypes)
    .attrs(kAttrs)
    .require(kNeeded)
    .on_cube()
    .run(deformable_conv_grad);

}  // namespace
}  // namespace acl_sim
