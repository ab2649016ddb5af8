// Resizing of lines, images and volumes, with gradients. The sizes follow from the operands. What was asked for as a
// scale comes as the attribute `scales`, 0 for none. Where there is no such attribute it comes as optional float64
// inputs behind the others, one per dimension: attributes are fp32, and the last bit of a scale decides which pixel is
// the nearest.

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

// `leading` inputs come before the scales. Where libtorch's kernel takes channels-last as it is, so do we.
struct Resize {
  Resize(OpContext& context, size_t leading, bool any_layout = false)
      : c(context),
        first(leading),
        from(any_layout ? c.in_any(0) : c.in(0)),
        to(any_layout ? c.out_as(0, from) : c.out(0)),
        corners(c.attrs().boolean("align_corners", false)) {}

  std::optional<double> scale(size_t i) const {
    const std::vector<double> scales = c.attrs().reals("scales");
    if (!scales.empty()) return scales.at(i) > 0 ? std::optional<double>(scales[i]) : std::nullopt;
    return c.has_input(first + i) ? std::optional<double>(c.in_scalar(first + i).toDouble()) : std::nullopt;
  }
  // The spatial sizes of the result and of the operand.
  at::IntArrayRef size() const { return to.sizes().slice(2); }
  at::IntArrayRef from_size() const { return from.sizes().slice(2); }

  OpContext& c;
  size_t first;
  at::Tensor from, to;
  bool corners;
};

void nearest_1d(OpContext& c) {
  Resize r(c, 1);
  at::upsample_nearest1d_out(r.to, r.from, r.size(), r.scale(0));
}
void nearest_1d_grad(OpContext& c) {
  Resize r(c, 1);
  at::upsample_nearest1d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.scale(0));
}
void nearest_2d(OpContext& c) {
  Resize r(c, 2, true);
  at::upsample_nearest2d_out(r.to, r.from, r.size(), r.scale(0), r.scale(1));
}
void nearest_2d_grad(OpContext& c) {
  Resize r(c, 2, true);
  at::upsample_nearest2d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.scale(0), r.scale(1));
}
void nearest_3d(OpContext& c) {
  Resize r(c, 1);
  at::upsample_nearest3d_out(r.to, r.from, r.size(), r.scale(0), r.scale(1), r.scale(2));
}
void nearest_3d_grad(OpContext& c) {
  Resize r(c, 1);
  at::upsample_nearest3d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.scale(0), r.scale(1), r.scale(2));
}

void exact_1d(OpContext& c) {
  Resize r(c, 1);
  at::_upsample_nearest_exact1d_out(r.to, r.from, r.size(), r.scale(0));
}
void exact_1d_grad(OpContext& c) {
  Resize r(c, 1);
  at::_upsample_nearest_exact1d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.scale(0));
}
void exact_2d(OpContext& c) {
  Resize r(c, 1, true);
  at::_upsample_nearest_exact2d_out(r.to, r.from, r.size(), r.scale(0), r.scale(1));
}
void exact_2d_grad(OpContext& c) {
  Resize r(c, 1, true);
  at::_upsample_nearest_exact2d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.scale(0), r.scale(1));
}
void exact_3d(OpContext& c) {
  Resize r(c, 1);
  at::_upsample_nearest_exact3d_out(r.to, r.from, r.size(), r.scale(0), r.scale(1), r.scale(2));
}
void exact_3d_grad(OpContext& c) {
  Resize r(c, 1);
  at::_upsample_nearest_exact3d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.scale(0), r.scale(1),
                                             r.scale(2));
}

void linear_1d(OpContext& c) {
  Resize r(c, 1);
  at::upsample_linear1d_out(r.to, r.from, r.size(), r.corners, r.scale(0));
}
void linear_1d_grad(OpContext& c) {
  Resize r(c, 1);
  at::upsample_linear1d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.corners, r.scale(0));
}
void bilinear_2d(OpContext& c) {
  Resize r(c, 2, true);
  at::upsample_bilinear2d_out(r.to, r.from, r.size(), r.corners, r.scale(0), r.scale(1));
}
void bilinear_2d_grad(OpContext& c) {
  Resize r(c, 2, true);
  at::upsample_bilinear2d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.corners, r.scale(0), r.scale(1));
}
void trilinear_3d(OpContext& c) {
  Resize r(c, 1);
  at::upsample_trilinear3d_out(r.to, r.from, r.size(), r.corners, r.scale(0), r.scale(1), r.scale(2));
}
void trilinear_3d_grad(OpContext& c) {
  Resize r(c, 1);
  at::upsample_trilinear3d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.corners, r.scale(0), r.scale(1),
                                        r.scale(2));
}
void bicubic_2d(OpContext& c) {
  Resize r(c, 1);
  at::upsample_bicubic2d_out(r.to, r.from, r.size(), r.corners, r.scale(0), r.scale(1));
}
void bicubic_2d_grad(OpContext& c) {
  Resize r(c, 1);
  at::upsample_bicubic2d_backward_out(r.to, r.from, r.from_size(), r.to.sizes(), r.corners, r.scale(0), r.scale(1));
}

// With a filter against aliasing; libtorch has no half-precision kernels for these.
template <auto Kernel>
void smooth(OpContext& c) {
  Resize r(c, 1);
  if (!is_low_precision(r.from)) {
    Kernel(r.to, r.from, r.size(), r.corners, r.scale(0), r.scale(1));
    return;
  }
  at::Tensor wide = at::empty(r.to.sizes(), r.to.options().dtype(at::kFloat));
  Kernel(wide, r.from.to(at::kFloat), r.size(), r.corners, r.scale(0), r.scale(1));
  r.to.copy_(wide);
}
template <auto Kernel>
void smooth_grad(OpContext& c) {
  Resize r(c, 1);
  if (!is_low_precision(r.from)) {
    Kernel(r.to, r.from, r.from_size(), r.to.sizes(), r.corners, r.scale(0), r.scale(1));
    return;
  }
  at::Tensor wide = at::empty(r.to.sizes(), r.to.options().dtype(at::kFloat));
  Kernel(wide, r.from.to(at::kFloat), r.from_size(), r.to.sizes(), r.corners, r.scale(0), r.scale(1));
  r.to.copy_(wide);
}

using Scale = std::optional<double>;
using Smooth = at::Tensor& (*)(at::Tensor&, const at::Tensor&, at::IntArrayRef, bool, Scale, Scale);
using SmoothGrad = at::Tensor& (*)(at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef, bool, Scale,
                                   Scale);
constexpr Smooth kBilinearAA = at::_upsample_bilinear2d_aa_out, kBicubicAA = at::_upsample_bicubic2d_aa_out;
constexpr Smooth kLanczosAA = at::_upsample_lanczos2d_aa_out;
constexpr SmoothGrad kBilinearAAGrad = at::_upsample_bilinear2d_aa_backward_out;
constexpr SmoothGrad kBicubicAAGrad = at::_upsample_bicubic2d_aa_backward_out;
constexpr SmoothGrad kLanczosAAGrad = at::_upsample_lanczos2d_aa_backward_out;

const DtypeSet kPixels = kFloatTypes | dtype_bit(ACL_UINT8);
const std::vector<std::string> kAttrs = {"output_size:ints", "input_size:ints", "align_corners:bool",
                                         "half_pixel_centers:bool"};
const std::vector<DtypeSet> kSized = {kRealTypes, kIntTypes, kFloatTypes};  // with an input that states the size
const std::vector<DtypeSet> kPlain = {kPixels, kFloatTypes};
const std::vector<DtypeSet> kLike = {kFloatTypes};  // with an operand of the size wanted

const std::vector<std::string> kResize = {"align_corners:bool", "half_pixel_centers:bool", "scales:floats"};
const std::vector<std::string> kUp = {"output_size:ints", "scales:floats"};
const std::vector<std::string> kUpGrad = {"input_size:ints", "output_size:ints", "scales:floats"};
const std::vector<std::string> kCorners = {"output_size:ints", "scales:floats", "align_corners:bool"};
const std::vector<std::string> kCornersGrad = {"input_size:ints", "output_size:ints", "scales:floats",
                                               "align_corners:bool"};

SIM_OP(ResizeNearestNeighborV2).inputs(2).dtypes(kSized).attrs(kResize).run(nearest_2d);
SIM_OP(ResizeNearestNeighborV2Grad).inputs(2).dtypes(kSized).attrs(kResize).run(nearest_2d_grad);
SIM_OP(ResizeBilinearV2).inputs(2).dtypes(kSized).attrs(kResize).run(bilinear_2d);
SIM_OP(ResizeBilinearV2Grad).inputs(2).dtypes(kLike).attrs(kResize).run(bilinear_2d_grad);
SIM_OP(UpsampleNearest1d).inputs(1).dtypes(kPlain).attrs(kUp).require({"output_size"}).run(nearest_1d);
SIM_OP(UpsampleNearest1dGrad)
    .inputs(1)
    .dtypes(kPlain)
    .attrs(kUpGrad)
    .require({"input_size", "output_size"})
    .run(nearest_1d_grad);
SIM_OP(UpsampleNearest3d).inputs(1).dtypes(kPlain).attrs(kUp).run(nearest_3d);
SIM_OP(UpsampleNearest3dGrad).inputs(1).dtypes(kPlain).attrs(kUpGrad).require({"input_size"}).run(nearest_3d_grad);
SIM_OP(UpsampleNearestExact3d).inputs(1).dtypes(kPlain).attrs(kUp).require({"output_size"}).run(exact_3d);
SIM_OP(UpsampleTrilinear3d).inputs(1).dtypes(kPlain).attrs(kCorners).run(trilinear_3d);
SIM_OP(UpsampleTrilinear3dGrad)
    .inputs(1)
    .dtypes(kPlain)
    .attrs(kCornersGrad)
    .require({"input_size"})
    .run(trilinear_3d_grad);
SIM_OP(ResizeNearestNeighborV2ByScale).inputs(4).dtypes(kSized).attrs(kAttrs).run(nearest_2d);
SIM_OP(ResizeNearestNeighborV2GradByScale).inputs(4).dtypes(kSized).attrs(kAttrs).run(nearest_2d_grad);
SIM_OP(ResizeBilinearV2ByScale).inputs(4).dtypes(kSized).attrs(kAttrs).run(bilinear_2d);
SIM_OP(ResizeBilinearV2GradByScale).inputs(4).dtypes(kLike).attrs(kAttrs).run(bilinear_2d_grad);
SIM_OP(UpsampleNearest1dByScale).inputs(2).dtypes(kPlain).attrs(kAttrs).run(nearest_1d);
SIM_OP(UpsampleNearest1dGradByScale).inputs(2).dtypes(kPlain).attrs(kAttrs).run(nearest_1d_grad);
SIM_OP(UpsampleNearest3dByScale).inputs(4).dtypes(kPlain).attrs(kAttrs).run(nearest_3d);
SIM_OP(UpsampleNearest3dGradByScale).inputs(4).dtypes(kPlain).attrs(kAttrs).run(nearest_3d_grad);
SIM_OP(UpsampleNearestExact3dByScale).inputs(4).dtypes(kPlain).attrs(kAttrs).run(exact_3d);
SIM_OP(UpsampleTrilinear3dByScale).inputs(4).dtypes(kPlain).attrs(kAttrs).run(trilinear_3d);
SIM_OP(UpsampleTrilinear3dGradByScale).inputs(4).dtypes(kPlain).attrs(kAttrs).run(trilinear_3d_grad);
SIM_OP(UpsampleNearestExact1d).inputs(1, 2).dtypes(kPlain).attrs(kAttrs).run(exact_1d);
SIM_OP(UpsampleNearestExact1dGrad).inputs(1, 2).dtypes(kPlain).attrs(kAttrs).run(exact_1d_grad);
SIM_OP(UpsampleNearestExact2d).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(exact_2d);
SIM_OP(UpsampleNearestExact2dGrad).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(exact_2d_grad);
SIM_OP(UpsampleNearestExact3dGrad).inputs(1, 4).dtypes(kPlain).attrs(kAttrs).run(exact_3d_grad);
SIM_OP(UpsampleLinear1d).inputs(1, 2).dtypes(kPlain).attrs(kAttrs).run(linear_1d);
SIM_OP(UpsampleLinear1dGrad).inputs(1, 2).dtypes(kPlain).attrs(kAttrs).run(linear_1d_grad);
SIM_OP(UpsampleBicubic2d).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(bicubic_2d);
SIM_OP(UpsampleBicubic2dGrad).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(bicubic_2d_grad);
SIM_OP(UpsampleBilinear2dAA).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(smooth<kBilinearAA>);
SIM_OP(UpsampleBilinear2dAABackward).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(smooth_grad<kBilinearAAGrad>);
SIM_OP(UpsampleBicubic2dAA).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(smooth<kBicubicAA>);
SIM_OP(UpsampleBicubic2dAAGrad).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(smooth_grad<kBicubicAAGrad>);
SIM_OP(UpsampleLanczos2dAA).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(smooth<kLanczosAA>);
SIM_OP(UpsampleLanczos2dAAGrad).inputs(1, 3).dtypes(kPlain).attrs(kAttrs).run(smooth_grad<kLanczosAAGrad>);

}  // namespace
}  // namespace acl_sim
