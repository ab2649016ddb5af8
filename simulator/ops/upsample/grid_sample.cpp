// Sampling images and volumes at the points of a grid, with gradients for both.

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

int64_t position_of(const std::string& name, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) {
      return static_cast<int64_t>(i);
    }
  }
  refuse("no mode named " + name);
}

struct Modes {
  explicit Modes(OpContext& c)
      : interpolation(
            position_of(c.attrs().text("interpolation_mode", "bilinear"), {"bilinear", "nearest", "bicubic"})),
        padding(position_of(c.attrs().text("padding_mode", "zeros"), {"zeros", "border", "reflection"})),
        corners(c.attrs().boolean("align_corners", false)) {}
  int64_t interpolation, padding;
  bool corners;
};

template <bool kVolume>
void sample(OpContext& c) {
  const Modes m(c);
  const at::Tensor x = c.in(0), grid = c.in(1);
  c.place_next_allocation(0);
  c.set_out(0, kVolume ? at::grid_sampler_3d(x, grid, m.interpolation, m.padding, m.corners)
                       : at::grid_sampler_2d(x, grid, m.interpolation, m.padding, m.corners));
}

// inputs grad, x, grid; outputs dx, dgrid
template <bool kVolume>
void sample_grad(OpContext& c) {
  const Modes m(c);
  const std::array<bool, 2> wanted = {true, true};
  const at::Tensor grad = c.in(0), x = c.in(1);
  at::Tensor grid = c.in(2), lost;
  // Where padding moves points into the image, libtorch's kernel makes an index of a coordinate that is no number. Such
  // a point lies at the image's first corner, as in the forward pass, and has no gradient.
  if (m.padding != 0 && !grid.isfinite().all().item<bool>()) {
    lost = grid.isfinite().logical_not_();
    grid = grid.masked_fill(lost, -1);
  }
  auto [dx, dgrid] = kVolume
                         ? at::grid_sampler_3d_backward(grad, x, grid, m.interpolation, m.padding, m.corners, wanted)
                         : at::grid_sampler_2d_backward(grad, x, grid, m.interpolation, m.padding, m.corners, wanted);
  if (lost.defined()) dgrid.masked_fill_(lost, 0);
  c.out(0).copy_(dx);
  c.out(1).copy_(dgrid);
}

const std::vector<std::string> kAttrs = {"interpolation_mode:str", "padding_mode:str", "align_corners:bool"};

SIM_OP(GridSampler2D).costly().inputs(2).dtypes(kFloatTypes).attrs(kAttrs).run(sample<false>);
SIM_OP(GridSampler2DGrad).costly().inputs(3).outputs(2).dtypes(kFloatTypes).attrs(kAttrs).run(sample_grad<false>);
SIM_OP(GridSampler3D).costly().inputs(2).dtypes(kFloatTypes).attrs(kAttrs).run(sample<true>);
SIM_OP(GridSampler3DGrad).costly().inputs(3).outputs(2).dtypes(kFloatTypes).attrs(kAttrs).run(sample_grad<true>);

}  // namespace
}  // namespace acl_sim
