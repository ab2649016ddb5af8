// Pooling of volumes with adaptive windows, pooling with random windows, and the way back from pooled values to their
// places. Indices are int64 positions within a plane or volume.

#include "ops/index/index_range.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

void adaptive_avg_pool_3d(OpContext& c) {
  c.out(0).copy_(at::_adaptive_avg_pool3d(c.in(0), c.attrs().integers("output_size")));
}

void adaptive_avg_pool_3d_grad(OpContext& c) {
  at::Tensor dx = c.out(0);
  dx.copy_(at::_adaptive_avg_pool3d_backward(c.in(0), at::empty_like(dx)));
}

void adaptive_max_pool_3d(OpContext& c) {
  at::Tensor y = c.out(0), argmax = c.out(1);
  at::adaptive_max_pool3d_out(y, argmax, c.in(0), c.attrs().integers("output_size"));
}

// inputs x, y_grad, argmax
void adaptive_max_pool_3d_grad(OpContext& c) {
  check_positions(c.in(2), c.in(0), 3);
  at::Tensor dx = c.out(0);
  at::adaptive_max_pool3d_backward_out(dx, c.in(1), c.in(0), c.in(2));
}

// Samples place the windows, which the kernels keep inside the image only while they can compute where.
void check_samples(const at::Tensor& samples) {
  constexpr double kMost = 1e3;
  TORCH_CHECK(samples.abs().le(kMost).all().item<bool>(), "random samples must be numbers, from 0 to 1 as a rule");
}

// inputs x, random_samples
void fractional_2d(OpContext& c) {
  check_samples(c.in(1));
  at::Tensor y = c.out(0), argmax = c.out(1);
  at::fractional_max_pool2d_out(y, argmax, c.in(0), c.attrs().integers("ksize"), c.attrs().integers("output_size"),
                                c.in(1));
}
void fractional_3d(OpContext& c) {
  check_samples(c.in(1));
  at::Tensor y = c.out(0), argmax = c.out(1);
  at::fractional_max_pool3d_out(y, argmax, c.in(0), c.attrs().integers("ksize"), c.attrs().integers("output_size"),
                                c.in(1));
}

// inputs x, y_grad, argmax
void fractional_2d_grad(OpContext& c) {
  check_positions(c.in(2), c.in(0), 2);
  at::Tensor dx = c.out(0);
  at::fractional_max_pool2d_backward_out(dx, c.in(1), c.in(0), c.attrs().integers("ksize"),
                                         c.attrs().integers("output_size"), c.in(2));
}
void fractional_3d_grad(OpContext& c) {
  check_positions(c.in(2), c.in(0), 3);
  at::Tensor dx = c.out(0);
  at::fractional_max_pool3d_backward_out(dx, c.in(1), c.in(0), c.attrs().integers("ksize"),
                                         c.attrs().integers("output_size"), c.in(2));
}

// inputs x, argmax
void unpool_2d(OpContext& c) {
  at::Tensor y = c.out(0);
  at::max_unpool2d_out(y, c.in(0), c.in(1), c.attrs().integers("output_size"));
}
void unpool_3d(OpContext& c) {
  at::Tensor y = c.out(0);
  at::max_unpool3d_out(y, c.in(0), c.in(1), c.attrs().integers("output_size"), c.attrs().integers("strides"),
                       c.attrs().integers("pads"));
}

const std::vector<std::string> kSize = {"output_size:ints"};
const std::vector<std::string> kFractional = {"ksize:ints", "output_size:ints"};
const std::vector<DtypeSet> kWithArgmax = {kFloatTypes, kFloatTypes, kIntTypes};
const DtypeSet kF = kFloatTypes;

SIM_OP(AdaptiveAvgPool3d)
    .inputs(1)
    .dtypes(kF)
    .attrs({"output_size:ints", "data_format:str"})
    .require({"output_size"})
    .run(adaptive_avg_pool_3d);
SIM_OP(AdaptiveAvgPool3dGrad).inputs(2).dtypes(kF).attrs({"data_format:str"}).run(adaptive_avg_pool_3d_grad);
SIM_OP(AdaptiveMaxPool3d)
    .inputs(1)
    .outputs(2)
    .dtypes(kF)
    .attrs({"output_size:ints", "indices_dtype:int"})
    .require({"output_size"})
    .run(adaptive_max_pool_3d);
SIM_OP(AdaptiveMaxPool3dGrad).inputs(3).dtypes(kWithArgmax).run(adaptive_max_pool_3d_grad);
SIM_OP(FractionalMaxPool2DWithFixedKsize).inputs(2).outputs(2).dtypes(kF).attrs(kFractional).run(fractional_2d);
SIM_OP(FractionalMaxPool2DGradWithFixedKsize).inputs(3).dtypes(kWithArgmax).attrs(kFractional).run(fractional_2d_grad);
SIM_OP(FractionalMaxPool3DWithFixedKsize).inputs(2).outputs(2).dtypes(kF).attrs(kFractional).run(fractional_3d);
SIM_OP(FractionalMaxPool3DGradWithFixedKsize).inputs(3).dtypes(kWithArgmax).attrs(kFractional).run(fractional_3d_grad);
SIM_OP(MaxUnpool2d).inputs(2).dtypes({kRealTypes, kIntTypes}).attrs(kSize).run(unpool_2d);
SIM_OP(MaxUnpool3d)
    .inputs(2)
    .dtypes({kRealTypes, kIntTypes})
    .attrs({"output_size:ints", "strides:ints", "pads:ints"})
    .run(unpool_3d);

}  // namespace
}  // namespace acl_sim
