// Resizing of images, nearest and bilinear, with gradients.

#include "nn_util.h"

namespace acl_sim {
namespace {

std::optional<double> scale(OpContext& c, size_t i) {
  const std::vector<double> scales = c.attrs().reals("scales");
  return i < scales.size() && scales[i] > 0 ? std::optional<double>(scales[i]) : std::nullopt;
}

// inputs x, size [h, w]
void nearest(OpContext& c) {
  const at::Tensor x = c.in_any(0);
  at::Tensor y = c.out_as(0, x);
  at::upsample_nearest2d_out(y, x, c.in_values(1), scale(c, 0), scale(c, 1));
}

// inputs grads, size of the original image
void nearest_grad(OpContext& c) {
  const at::Tensor dy = c.in_any(0);
  at::Tensor dx = c.out_as(0, dy);
  at::upsample_nearest2d_backward_out(dx, dy, {dy.size(2), dy.size(3)}, dx.sizes(), scale(c, 0), scale(c, 1));
}

void bilinear(OpContext& c) {
  const at::Tensor x = c.in_any(0);
  at::Tensor y = c.out_as(0, x);
  at::upsample_bilinear2d_out(y, x, c.in_values(1), c.attrs().boolean("align_corners", false), scale(c, 0),
                              scale(c, 1));
}

// inputs grads, size of the original image
void bilinear_grad(OpContext& c) {
  const at::Tensor dy = c.in_any(0);
  at::Tensor dx = c.out_as(0, dy);
  at::upsample_bilinear2d_backward_out(dx, dy, {dy.size(2), dy.size(3)}, dx.sizes(),
                                       c.attrs().boolean("align_corners", false), scale(c, 0), scale(c, 1));
}

const std::vector<std::string> kAttrs = {"align_corners:bool", "half_pixel_centers:bool", "scales:floats"};

SIM_OP(ResizeNearestNeighborV2).inputs(2).dtypes({kRealTypes, kIntTypes}).attrs(kAttrs).run(nearest);
SIM_OP(ResizeNearestNeighborV2Grad).inputs(2).dtypes({kFloatTypes, kIntTypes}).attrs(kAttrs).run(nearest_grad);
SIM_OP(ResizeBilinearV2).inputs(2).dtypes({kRealTypes, kIntTypes}).attrs(kAttrs).run(bilinear);
SIM_OP(ResizeBilinearV2Grad).inputs(2).dtypes({kFloatTypes, kIntTypes}).attrs(kAttrs).run(bilinear_grad);

}  // namespace
}  // namespace acl_sim
