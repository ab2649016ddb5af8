// Features of regions: ROIAlign, position-sensitive pooling, and deformable sampling, with their gradients.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

// Four pixels and their weights; no weight where the point is outside.
struct Bilinear {
  int64_t index[4] = {0, 0, 0, 0};
  float weight[4] = {0, 0, 0, 0};
  float row_slope[4] = {0, 0, 0, 0}, column_slope[4] = {0, 0, 0, 0};  // derivatives of the weights

  // Points outside count as zeros and blend with the border's pixels.
  static Bilinear with_zeros(float y, float x, int64_t height, int64_t width) {
    Bilinear b;
    if (y <= -1 || y >= static_cast<float>(height) || x <= -1 || x >= static_cast<float>(width)) return b;
    const auto row = static_cast<int64_t>(std::floor(y)), column = static_cast<int64_t>(std::floor(x));
    const float dy = y - static_cast<float>(row), dx = x - static_cast<float>(column);
    for (int k = 0; k < 4; ++k) {
      const bool lower = k >= 2, right = k % 2 == 1;
      const int64_t r = row + lower, q = column + right;
      if (r < 0 || r >= height || q < 0 || q >= width) continue;
      const float wy = lower ? dy : 1 - dy, wx = right ? dx : 1 - dx;
      b.index[k] = r * width + q;
      b.weight[k] = wy * wx;
      b.row_slope[k] = lower ? wx : -wx;
      b.column_slope[k] = right ? wy : -wy;
    }
    return b;
  }

  // Points up to one pixel outside take the border's value.
  static Bilinear clamped(float y, float x, int64_t height, int64_t width) {
    if (y < -1 || y > static_cast<float>(height) || x < -1 || x > static_cast<float>(width)) return {};
    return with_zeros(std::clamp(y, 0.0F, static_cast<float>(height - 1)),
                      std::clamp(x, 0.0F, static_cast<float>(width - 1)), height, width);
  }

  float read(const float* plane) const {
    float value = 0;
    for (int k = 0; k < 4; ++k) value += weight[k] * plane[index[k]];
    return value;
  }
  void add(float* plane, float value) const {
    for (int k = 0; k < 4; ++k) plane[index[k]] += weight[k] * value;
  }
};

// ---- ROIAlign: roi_end_mode 0 takes corners as they are, 1 the last pixel as inside, 2 pixel centres at halves

struct AlignParams {
  float scale;
  int64_t height, width, samples, mode;
  explicit AlignParams(OpContext& c)
      : scale(static_cast<float>(c.attrs().real("spatial_scale", 1))),
        height(c.attrs().integer("pooled_height", 1)),
        width(c.attrs().integer("pooled_width", 1)),
        samples(c.attrs().integer("sample_num", 2)),
        mode(c.attrs().integer("roi_end_mode", 1)) {}
};

// Calls visit(output cell, sampled point, 1 / number of points) for every point of a region.
template <class Visit>
void for_points(const AlignParams& p, const float* roi, int64_t height, int64_t width, const Visit& visit) {
  const float offset = p.mode == 2 ? 0.5F : 0.0F, last = p.mode == 1 ? 1.0F : 0.0F;
  const float x0 = roi[1] * p.scale - offset, y0 = roi[2] * p.scale - offset;
  float w = (roi[3] + last) * p.scale - offset - x0, h = (roi[4] + last) * p.scale - offset - y0;
  if (p.mode != 2) {
    w = std::max(w, 1.0F);
    h = std::max(h, 1.0F);
  }
  const float bin_w = w / static_cast<float>(p.width), bin_h = h / static_cast<float>(p.height);
  const auto points = [&](float bin) {
    return p.samples > 0 ? p.samples : std::max<int64_t>(static_cast<int64_t>(std::ceil(bin)), 1);
  };
  const int64_t rows = points(bin_h), columns = points(bin_w);
  const float share = 1.0F / static_cast<float>(rows * columns);
  for (int64_t i = 0; i < p.height; ++i) {
    for (int64_t j = 0; j < p.width; ++j) {
      for (int64_t a = 0; a < rows; ++a) {
        const float y =
            y0 + bin_h * (static_cast<float>(i) + (static_cast<float>(a) + 0.5F) / static_cast<float>(rows));
        for (int64_t b = 0; b < columns; ++b) {
          const float x =
              x0 + bin_w * (static_cast<float>(j) + (static_cast<float>(b) + 0.5F) / static_cast<float>(columns));
          visit(i * p.width + j, Bilinear::clamped(y, x, height, width), share);
        }
      }
    }
  }
}

int64_t image_of(const float* roi, int64_t images) {
  const auto image = static_cast<int64_t>(roi[0]);
  if (image < 0 || image >= images) {
    refuse("a region is of image " + std::to_string(image) + ", but there are " + std::to_string(images));
  }
  return image;
}

// features (N, C, H, W), rois (R, 5): image, x0, y0, x1, y1 -> (R, C, ph, pw)
void roi_align(OpContext& c) {
  const Tensor x = widen(c.in(0)), rois = widen(c.in(1));
  const AlignParams p(c);
  const int64_t channels = x.size(1), area = x.size(2) * x.size(3), cells = p.height * p.width;
  const Tensor y = at::zeros({rois.size(0), channels, p.height, p.width}, at::kFloat);
  for (int64_t r = 0; r < rois.size(0); ++r) {
    const float* roi = rois.const_data_ptr<float>() + 5 * r;
    const float* image = x.const_data_ptr<float>() + image_of(roi, x.size(0)) * channels * area;
    float* out = y.data_ptr<float>() + r * channels * cells;
    for_points(p, roi, x.size(2), x.size(3), [&](int64_t cell, const Bilinear& b, float share) {
      for (int64_t k = 0; k < channels; ++k) out[k * cells + cell] += b.read(image + k * area) * share;
    });
  }
  c.out(0).copy_(y);
}
SIM_OP(ROIAlign)
    .costly()
    .inputs(2)
    .dtypes(kFloatTypes)
    .attrs({"spatial_scale:float", "pooled_height:int", "pooled_width:int", "sample_num:int", "roi_end_mode:int"})
    .require({"spatial_scale", "pooled_height", "pooled_width"})
    .run(roi_align);

// ydiff (R, C, ph, pw), rois -> xdiff (N, C, H, W)
void roi_align_grad(OpContext& c) {
  const Tensor dy = widen(c.in(0)), rois = widen(c.in(1));
  const AlignParams p(c);
  const Tensor dx = at::zeros(c.out(0).sizes(), at::kFloat);
  const int64_t channels = dx.size(1), area = dx.size(2) * dx.size(3), cells = p.height * p.width;
  for (int64_t r = 0; r < rois.size(0); ++r) {
    const float* roi = rois.const_data_ptr<float>() + 5 * r;
    float* image = dx.data_ptr<float>() + image_of(roi, dx.size(0)) * channels * area;
    const float* in = dy.const_data_ptr<float>() + r * channels * cells;
    for_points(p, roi, dx.size(2), dx.size(3), [&](int64_t cell, const Bilinear& b, float share) {
      for (int64_t k = 0; k < channels; ++k) b.add(image + k * area, in[k * cells + cell] * share);
    });
  }
  c.out(0).copy_(dx);
}
SIM_OP(ROIAlignGrad)
    .costly()
    .inputs(2)
    .dtypes(kFloatTypes)
    .attrs({"spatial_scale:float", "pooled_height:int", "pooled_width:int", "sample_num:int", "roi_end_mode:int",
            "xdiff_shape:ints"})
    .require({"xdiff_shape", "spatial_scale", "pooled_height", "pooled_width"})
    .run(roi_align_grad);

// ---- Position-sensitive pooling: each cell of a region has channels of its own

struct PsParams {
  float scale;
  int64_t group, channels;
  explicit PsParams(OpContext& c)
      : scale(static_cast<float>(c.attrs().real("spatial_scale", 1))),
        group(c.attrs().integer("group_size", 1)),
        channels(c.attrs().integer("output_dim", 1)) {}
};

// Calls visit(output index, input channel's offset, first row, last row, first column, last column) for each cell.
template <class Visit>
void for_cells(const PsParams& p, const Tensor& rois, int64_t images, int64_t height, int64_t width,
               const Visit& visit) {
  const int64_t per_image = rois.size(2);
  const float* all = rois.const_data_ptr<float>();
  const auto bound = [](float v, int64_t size) { return std::clamp<int64_t>(static_cast<int64_t>(v), 0, size); };
  for (int64_t r = 0; r < rois.size(0) * per_image; ++r) {
    float roi[5];
    for (int64_t k = 0; k < 5; ++k) roi[k] = all[(r / per_image * 5 + k) * per_image + r % per_image];
    const int64_t image = image_of(roi, images);
    const float x0 = std::nearbyint(roi[1]) * p.scale, y0 = std::nearbyint(roi[2]) * p.scale;
    const float bin_w = std::max(std::nearbyint(roi[3] + 1) * p.scale - x0, 0.1F) / static_cast<float>(p.group);
    const float bin_h = std::max(std::nearbyint(roi[4] + 1) * p.scale - y0, 0.1F) / static_cast<float>(p.group);
    for (int64_t k = 0; k < p.channels; ++k) {
      for (int64_t i = 0; i < p.group; ++i) {
        for (int64_t j = 0; j < p.group; ++j) {
          const int64_t channel = (k * p.group + i) * p.group + j;
          visit(r * p.channels * p.group * p.group + channel,
                (image * p.channels * p.group * p.group + channel) * height * width,
                bound(std::floor(static_cast<float>(i) * bin_h + y0), height),
                bound(std::ceil(static_cast<float>(i + 1) * bin_h + y0), height),
                bound(std::floor(static_cast<float>(j) * bin_w + x0), width),
                bound(std::ceil(static_cast<float>(j + 1) * bin_w + x0), width));
        }
      }
    }
  }
}

// x (N, output_dim * group^2, H, W), rois (B, 5, R) -> (B * R, output_dim, group, group)
void ps_roi_pooling(OpContext& c) {
  const Tensor x = widen(c.in(0)), rois = widen(c.in(1));
  const PsParams p(c);
  const int64_t width = x.size(3);
  const Tensor y = at::zeros(c.out(0).sizes(), at::kFloat);
  const float* in = x.const_data_ptr<float>();
  float* out = y.data_ptr<float>();
  for_cells(p, rois, x.size(0), x.size(2), width,
            [&](int64_t o, int64_t plane, int64_t top, int64_t bottom, int64_t left, int64_t right) {
              if (bottom <= top || right <= left) return;
              float sum = 0;
              for (int64_t i = top; i < bottom; ++i) {
                for (int64_t j = left; j < right; ++j) sum += in[plane + i * width + j];
              }
              out[o] = sum / static_cast<float>((bottom - top) * (right - left));
            });
  c.out(0).copy_(y);
}
SIM_OP(PSROIPoolingV2)
    .costly()
    .inputs(2)
    .dtypes(kFloatTypes)
    .attrs({"spatial_scale:float", "group_size:int", "output_dim:int"})
    .require({"spatial_scale", "group_size", "output_dim"})
    .run(ps_roi_pooling);

void ps_roi_pooling_grad(OpContext& c) {
  const Tensor dy = widen(c.in(0)), rois = widen(c.in(1));
  const PsParams p(c);
  const Tensor dx = at::zeros(c.out(0).sizes(), at::kFloat);
  const int64_t width = dx.size(3);
  const float* in = dy.const_data_ptr<float>();
  float* out = dx.data_ptr<float>();
  for_cells(p, rois, dx.size(0), dx.size(2), width,
            [&](int64_t o, int64_t plane, int64_t top, int64_t bottom, int64_t left, int64_t right) {
              if (bottom <= top || right <= left) return;
              const float share = in[o] / static_cast<float>((bottom - top) * (right - left));
              for (int64_t i = top; i < bottom; ++i) {
                for (int64_t j = left; j < right; ++j) out[plane + i * width + j] += share;
              }
            });
  c.out(0).copy_(dx);
}
SIM_OP(PSROIPoolingGradV2D)
    .costly()
    .inputs(2)
    .dtypes(kFloatTypes)
    .attrs({"spatial_scale:float", "group_size:int", "output_dim:int", "input_size:ints"})
    .require({"spatial_scale", "group_size", "output_dim", "input_size"})
    .run(ps_roi_pooling_grad);

// ---- Deformable sampling: a convolution's windows with learned displacements, spread out so that a plain convolution
// of kernel and stride `ksize` finishes it. Offsets (N, 3 * groups * kh * kw, OH, OW): all x, all y, all masks.

struct Deform {
  int64_t kernel_h, kernel_w, stride_h, stride_w, top, left, dilation_h, dilation_w, groups;
  bool modulated;
  explicit Deform(OpContext& c) {
    const auto four = [&](const char* name, const std::vector<int64_t>& otherwise) {
      const std::vector<int64_t> v = c.attrs().integers(name, otherwise);
      if (v.size() != 4) refuse(std::string("DeformableOffsets: ") + name + " has 4 numbers");
      return v;
    };
    const std::vector<int64_t> kernel = c.attrs().integers("ksize"), stride = four("strides", {1, 1, 1, 1});
    const std::vector<int64_t> pads = four("pads", {0, 0, 0, 0}), dilation = four("dilations", {1, 1, 1, 1});
    if (kernel.size() != 2) refuse("DeformableOffsets: ksize has 2 numbers");
    kernel_h = kernel[0], kernel_w = kernel[1], stride_h = stride[2], stride_w = stride[3];
    top = pads[0], left = pads[2], dilation_h = dilation[2], dilation_w = dilation[3];
    groups = c.attrs().integer("deformable_groups", 1);
    modulated = c.attrs().boolean("modulated", true);
  }
};

// Calls visit(group, position of x's offset, of y's, of the mask, of the result in its plane, point) for every tap.
template <class Visit>
void for_taps(const Deform& d, const float* offsets, int64_t height, int64_t width, int64_t out_h, int64_t out_w,
              const Visit& visit) {
  const int64_t taps = d.kernel_h * d.kernel_w, plane = out_h * out_w, all = d.groups * taps * plane;
  for (int64_t g = 0; g < d.groups; ++g) {
    for (int64_t k = 0; k < taps; ++k) {
      for (int64_t i = 0; i < out_h; ++i) {
        for (int64_t j = 0; j < out_w; ++j) {
          const int64_t at = ((g * taps + k) * out_h + i) * out_w + j, row = k / d.kernel_w, column = k % d.kernel_w;
          const float y = static_cast<float>(i * d.stride_h - d.top + row * d.dilation_h) + offsets[all + at];
          const float x = static_cast<float>(j * d.stride_w - d.left + column * d.dilation_w) + offsets[at];
          const int64_t spread = (i * d.kernel_h + row) * out_w * d.kernel_w + j * d.kernel_w + column;
          visit(g, at, all + at, 2 * all + at, spread, Bilinear::with_zeros(y, x, height, width));
        }
      }
    }
  }
}

void deformable_offsets(OpContext& c) {
  const Tensor x = widen(c.in(0)), offsets = widen(c.in(1));
  const Deform d(c);
  const int64_t channels = x.size(1), per_group = channels / d.groups, area = x.size(2) * x.size(3);
  const int64_t out_h = offsets.size(2), out_w = offsets.size(3);
  const Tensor y = at::zeros(c.out(0).sizes(), at::kFloat);
  const int64_t out_area = y.size(2) * y.size(3);
  at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* image = x.const_data_ptr<float>() + n * channels * area;
      const float* off = offsets.const_data_ptr<float>() + n * offsets.stride(0);
      float* out = y.data_ptr<float>() + n * channels * out_area;
      for_taps(d, off, x.size(2), x.size(3), out_h, out_w,
               [&](int64_t g, int64_t, int64_t, int64_t mask, int64_t spread, const Bilinear& b) {
                 const float factor = d.modulated ? off[mask] : 1.0F;
                 for (int64_t k = g * per_group; k < (g + 1) * per_group; ++k) {
                   out[k * out_area + spread] = factor * b.read(image + k * area);
                 }
               });
    }
  });
  c.out(0).copy_(y);
}
const std::vector<std::string> kDeformAttrs = {"ksize:ints",     "strides:ints",    "pads:ints",
                                               "dilations:ints", "data_format:str", "deformable_groups:int",
                                               "modulated:bool"};
const std::vector<std::string> kDeformNeeded = {"strides", "pads", "ksize"};
SIM_OP(DeformableOffsets)
    .costly()
    .inputs(2)
    .dtypes(kFloatTypes)
    .attrs(kDeformAttrs)
    .require(kDeformNeeded)
    .run(deformable_offsets);

// grad, x, offsets -> grad_x, grad_offsets
void deformable_offsets_grad(OpContext& c) {
  const Tensor dy = widen(c.in(0)), x = widen(c.in(1)), offsets = widen(c.in(2));
  const Deform d(c);
  const int64_t channels = x.size(1), per_group = channels / d.groups, area = x.size(2) * x.size(3);
  const int64_t out_h = offsets.size(2), out_w = offsets.size(3), out_area = dy.size(2) * dy.size(3);
  const Tensor dx = at::zeros(x.sizes(), at::kFloat), doffsets = at::zeros(offsets.sizes(), at::kFloat);
  at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* image = x.const_data_ptr<float>() + n * channels * area;
      float* dimage = dx.data_ptr<float>() + n * channels * area;
      const float* off = offsets.const_data_ptr<float>() + n * offsets.stride(0);
      float* doff = doffsets.data_ptr<float>() + n * offsets.stride(0);
      const float* in = dy.const_data_ptr<float>() + n * channels * out_area;
      for_taps(d, off, x.size(2), x.size(3), out_h, out_w,
               [&](int64_t g, int64_t by_x, int64_t by_y, int64_t mask, int64_t spread, const Bilinear& b) {
                 const float factor = d.modulated ? off[mask] : 1.0F;
                 float by_mask = 0, by_row = 0, by_column = 0;
                 for (int64_t k = g * per_group; k < (g + 1) * per_group; ++k) {
                   const float grad = in[k * out_area + spread];
                   const float* plane = image + k * area;
                   float* dplane = dimage + k * area;
                   for (int q = 0; q < 4; ++q) {
                     const float part = grad * plane[b.index[q]];
                     by_mask += b.weight[q] * part;
                     by_row += b.row_slope[q] * part;
                     by_column += b.column_slope[q] * part;
                     dplane[b.index[q]] += b.weight[q] * grad * factor;
                   }
                 }
                 if (d.modulated) doff[mask] = by_mask;
                 doff[by_y] = by_row * factor;
                 doff[by_x] = by_column * factor;
               });
    }
  });
  c.out(0).copy_(dx);
  c.out(1).copy_(doffsets);
}
SIM_OP(DeformableOffsetsGrad)
    .costly()
    .inputs(3)
    .outputs(2)
    .dtypes(kFloatTypes)
    .attrs(kDeformAttrs)
    .require(kDeformNeeded)
    .run(deformable_offsets_grad);

}  // namespace
}  // namespace acl_sim
