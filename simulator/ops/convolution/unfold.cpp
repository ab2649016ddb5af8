// Sliding blocks of an image as columns, and their sum back into an image.

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using Ints = std::vector<int64_t>;

// [before, after] per dimension, both sides equal, as one number each.
Ints even(OpContext& c, const Ints& pads) {
  if (pads.size() != 4 || pads[0] != pads[1] || pads[2] != pads[3]) {
    refuse("pads must hold the same padding before and after each of two dimensions: " + c.describe());
  }
  return {pads[0], pads[2]};
}

void im2col(OpContext& c) {
  at::Tensor y = c.out(0);
  at::im2col_out(y, c.in(0), c.attrs().integers("ksizes"), c.attrs().integers("dilations", {1, 1}),
                 even(c, c.attrs().integers("pads", {0, 0, 0, 0})), c.attrs().integers("strides", {1, 1}));
}

// inputs grad_out, output_size
void col2im(OpContext& c) {
  at::Tensor y = c.out(0);
  at::col2im_out(y, c.in(0), c.in_values(1), c.attrs().integers("kernel_size"), c.attrs().integers("dilation"),
                 c.attrs().integers("padding"), c.attrs().integers("stride"));
}

const DtypeSet kTypes = kFloatTypes | dtype_bit(ACL_COMPLEX64) | dtype_bit(ACL_COMPLEX128) | dtype_bit(ACL_BOOL);

SIM_OP(Im2col)
    .inputs(1)
    .dtypes(kTypes)
    .attrs({"ksizes:ints", "strides:ints", "dilations:ints", "padding_mode:str", "pads:ints"})
    .require({"ksizes"})
    .run(im2col);
SIM_OP(Col2im)
    .inputs(2)
    .dtypes({kTypes, kIntTypes})
    .attrs({"kernel_size:ints", "dilation:ints", "padding:ints", "stride:ints"})
    .require({"kernel_size", "dilation", "padding", "stride"})
    .run(col2im);

}  // namespace
}  // namespace acl_sim
