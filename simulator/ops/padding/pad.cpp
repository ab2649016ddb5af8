// Padding by reflection or replication of the border, with gradients.

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

// The padded dimensions' pads, last dimension first, from [before, after] of every dimension; at least one dimension
// and at most three.
std::vector<int64_t> pads(OpContext& c, const at::Tensor& x) {
  const std::vector<int64_t> all = c.in_values(1);
  if (all.size() != 2 * static_cast<size_t>(x.dim())) {
    refuse("paddings must hold two numbers per dimension");
  }
  size_t padded = 1;
  for (size_t i = 0; i < all.size() / 2; ++i) {
    if (all[2 * i] != 0 || all[2 * i + 1] != 0) {
      padded = std::max(padded, all.size() / 2 - i);
    }
  }
  // libtorch's kernels want one or two dimensions in front of the padded ones.
  padded = std::max<size_t>(padded, x.dim() > 2 ? static_cast<size_t>(x.dim()) - 2 : 1);
  if (padded > 3 || padded >= static_cast<size_t>(x.dim())) {
    refuse("no mode but constant pads this many dimensions");
  }
  std::vector<int64_t> out;
  for (size_t i = 1; i <= padded; ++i) {
    out.push_back(all[all.size() - 2 * i]);
    out.push_back(all[all.size() - 2 * i + 1]);
  }
  return out;
}

bool reflects(OpContext& c) {
  const std::string mode = c.attrs().text("mode", "constant");
  if (mode != "reflect" && mode != "edge") {
    refuse("mode must be reflect or edge, not " + mode);
  }
  return mode == "reflect";
}

void pad(OpContext& c) {
  const at::Tensor x = c.in(0);
  const std::vector<int64_t> p = pads(c, x);
  at::Tensor y = c.out(0);
  const bool reflect = reflects(c);
  if (p.size() == 2) {
    reflect ? at::reflection_pad1d_out(y, x, p) : at::replication_pad1d_out(y, x, p);
  } else if (p.size() == 4) {
    reflect ? at::reflection_pad2d_out(y, x, p) : at::replication_pad2d_out(y, x, p);
  } else {
    reflect ? at::reflection_pad3d_out(y, x, p) : at::replication_pad3d_out(y, x, p);
  }
}

void pad_grad(OpContext& c) {
  const at::Tensor dy = c.in(0);
  const std::vector<int64_t> p = pads(c, dy);
  at::Tensor dx = c.out(0);
  const at::Tensor x = at::empty_like(dx);  // only its sizes count
  const bool reflect = reflects(c);
  if (p.size() == 2) {
    reflect ? at::reflection_pad1d_backward_out(dx, dy, x, p) : at::replication_pad1d_backward_out(dx, dy, x, p);
  } else if (p.size() == 4) {
    reflect ? at::reflection_pad2d_backward_out(dx, dy, x, p) : at::replication_pad2d_backward_out(dx, dy, x, p);
  } else {
    reflect ? at::reflection_pad3d_backward_out(dx, dy, x, p) : at::replication_pad3d_backward_out(dx, dy, x, p);
  }
}

const std::vector<std::string> kAttrs = {"mode:str", "paddings_contiguous:bool"};

SIM_OP(PadV3).inputs(2, 3).dtypes({kNumericTypes, kIntTypes, kNumericTypes}).attrs(kAttrs).run(pad);
SIM_OP(PadV3Grad).inputs(2).dtypes({kNumericTypes, kIntTypes}).attrs(kAttrs).run(pad_grad);

}  // namespace
}  // namespace acl_sim
