// Max, average and adaptive pooling in two and three dimensions, with gradients. Images run in the layout that the
// device keeps them in; indices are int64 positions within a plane, as frameworks expect.

#include "ops/index/index_range.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using Ints = std::vector<int64_t>;

// The spatial part of an attribute: two or three values, or one per dimension of N, C and the rest.
Ints spatial(OpContext& c, const char* name, size_t rank, int64_t otherwise) {
  Ints values = c.attrs().integers(name);
  if (values.empty()) {
    return Ints(rank, otherwise);
  }
  if (values.size() < rank) {
    refuse(std::string("attribute ") + name + " is too short");
  }
  return {values.end() - static_cast<std::ptrdiff_t>(rank), values.end()};
}

// Pads as [before, after] per dimension (both sides equal) or one value per dimension.
Ints padding(OpContext& c, size_t rank) {
  const Ints pads = c.attrs().integers("pads");
  if (pads.size() == 2 * rank) {
    Ints out;
    for (size_t i = 0; i < rank; ++i) {
      if (pads[2 * i] != pads[2 * i + 1]) {
        refuse("pads differ between the two sides of a dimension");
      }
      out.push_back(pads[2 * i]);
    }
    return out;
  }
  return spatial(c, "pads", rank, 0);
}

// An operand in the layout of `like`, which an operator over several images needs them to share.
at::Tensor in_like(OpContext& c, size_t i, const at::Tensor& like) {
  return stored_channels_last(like) ? c.in_channels_last(i) : c.in(i);
}

void max_pool(OpContext& c) {
  const at::Tensor x = c.in_any(0);
  at::Tensor y = c.out_as(0, x), argmax = c.out_as(1, x);
  const Ints k = spatial(c, "ksize", 2, 1), s = spatial(c, "strides", 2, 1), d = spatial(c, "dilation", 2, 1);
  const bool ceil_mode = c.attrs().boolean("ceil_mode", false);
  if (argmax.scalar_type() == at::kLong) {
    at::max_pool2d_with_indices_out(y, argmax, x, k, s, padding(c, 2), d, ceil_mode);
    return;
  }
  auto [values, indices] = at::max_pool2d_with_indices(x, k, s, padding(c, 2), d, ceil_mode);
  y.copy_(values);
  argmax.copy_(indices);
}

// inputs x, grad, argmax
void max_pool_grad(OpContext& c) {
  const at::Tensor x = c.in_any(0), dy = in_like(c, 1, x);
  const at::Tensor argmax = in_like(c, 2, x).to(at::kLong);
  check_positions(argmax, x, 2);
  at::Tensor dx = c.out_as(0, x);
  at::max_pool2d_with_indices_backward_out(dx, dy, x, spatial(c, "ksize", 2, 1), spatial(c, "strides", 2, 1),
                                           padding(c, 2), spatial(c, "dilation", 2, 1),
                                           c.attrs().boolean("ceil_mode", false), argmax);
}

void max_pool_3d(OpContext& c) {
  at::Tensor y = c.out(0), argmax = c.out(1);
  at::max_pool3d_with_indices_out(y, argmax, c.in(0), spatial(c, "ksize", 3, 1), spatial(c, "strides", 3, 1),
                                  padding(c, 3), spatial(c, "dilation", 3, 1), c.attrs().boolean("ceil_mode", false));
}

void max_pool_3d_grad(OpContext& c) {
  check_positions(c.in(2), c.in(0), 3);
  at::Tensor dx = c.out(0);
  at::max_pool3d_with_indices_backward_out(dx, c.in(1), c.in(0), spatial(c, "ksize", 3, 1), spatial(c, "strides", 3, 1),
                                           padding(c, 3), spatial(c, "dilation", 3, 1),
                                           c.attrs().boolean("ceil_mode", false), c.in(2));
}

std::optional<int64_t> divisor(OpContext& c) {
  const int64_t value = c.attrs().integer("divisor_override", 0);
  return value == 0 ? std::nullopt : std::optional<int64_t>(value);
}

void avg_pool(OpContext& c) {
  const at::Tensor x = c.in_any(0);
  at::Tensor y = c.out_as(0, x);
  at::avg_pool2d_out(y, x, spatial(c, "ksize", 2, 1), spatial(c, "strides", 2, 1), padding(c, 2),
                     c.attrs().boolean("ceil_mode", false), !c.attrs().boolean("exclusive", true), divisor(c));
}

// inputs orig_input_shape, input_grad
void avg_pool_grad(OpContext& c) {
  const at::Tensor dy = c.in_any(1);
  at::Tensor dx = c.out_as(0, dy);
  at::avg_pool2d_backward_out(dx, dy, at::empty_like(dx), spatial(c, "ksize", 2, 1), spatial(c, "strides", 2, 1),
                              padding(c, 2), c.attrs().boolean("ceil_mode", false),
                              !c.attrs().boolean("exclusive", true), divisor(c));
}

// libtorch averages volumes in float32 and float64 only.
void avg_pool_3d(OpContext& c) {
  at::Tensor y = c.out(0);
  if (is_low_precision(y)) {
    y.copy_(at::avg_pool3d(widen(c.in(0)), spatial(c, "ksize", 3, 1), spatial(c, "strides", 3, 1), padding(c, 3),
                           c.attrs().boolean("ceil_mode", false), c.attrs().boolean("count_include_pad", true),
                           divisor(c)));
    return;
  }
  at::avg_pool3d_out(y, c.in(0), spatial(c, "ksize", 3, 1), spatial(c, "strides", 3, 1), padding(c, 3),
                     c.attrs().boolean("ceil_mode", false), c.attrs().boolean("count_include_pad", true), divisor(c));
}

void avg_pool_3d_grad(OpContext& c) {
  at::Tensor dx = c.out(0);
  if (is_low_precision(dx)) {
    dx.copy_(at::avg_pool3d_backward(widen(c.in(1)), at::empty_like(dx, dx.options().dtype(at::kFloat)),
                                     spatial(c, "ksize", 3, 1), spatial(c, "strides", 3, 1), padding(c, 3),
                                     c.attrs().boolean("ceil_mode", false),
                                     c.attrs().boolean("count_include_pad", true), divisor(c)));
    return;
  }
  at::avg_pool3d_backward_out(dx, c.in(1), at::empty_like(dx), spatial(c, "ksize", 3, 1), spatial(c, "strides", 3, 1),
                              padding(c, 3), c.attrs().boolean("ceil_mode", false),
                              c.attrs().boolean("count_include_pad", true), divisor(c));
}

void adaptive_avg_pool(OpContext& c) {
  const at::Tensor x = c.in_any(0);
  at::Tensor y = c.out_as(0, x);
  y.copy_(at::_adaptive_avg_pool2d(x, c.attrs().integers("output_size")));
}

void adaptive_avg_pool_grad(OpContext& c) {
  const at::Tensor dy = c.in_any(0);
  at::Tensor dx = c.out_as(0, dy);
  dx.copy_(at::_adaptive_avg_pool2d_backward(dy, at::empty_like(dx)));
}

void adaptive_max_pool(OpContext& c) {
  at::Tensor y = c.out(0), argmax = c.out(1);
  at::adaptive_max_pool2d_out(y, argmax, c.in(0), c.attrs().integers("output_size"));
}

void adaptive_max_pool_grad(OpContext& c) {
  check_positions(c.in(2), c.in(0), 2);
  at::Tensor dx = c.out(0);
  at::adaptive_max_pool2d_backward_out(dx, c.in(1), c.in(0), c.in(2));
}

const std::vector<std::string> kMaxAttrs = {"ksize:ints", "strides:ints",   "pads:ints",      "dilation:ints",
                                            "dtype:int",  "ceil_mode:bool", "data_format:str"};
const std::vector<std::string> kMaxGrad3dAttrs = {"ksize:ints",    "strides:ints",   "pads:ints",
                                                  "dilation:ints", "ceil_mode:bool", "data_format:str"};
const std::vector<std::string> kAvgAttrs = {"ksize:ints",       "strides:ints",    "pads:ints",
                                            "padding_mode:str", "data_format:str", "global_pooling:bool",
                                            "ceil_mode:bool",   "exclusive:bool",  "divisor_override:int"};
const std::vector<std::string> kAvg3dAttrs = {"ksize:ints",          "strides:ints",   "pads:ints",
                                              "data_format:str",     "ceil_mode:bool", "count_include_pad:bool",
                                              "divisor_override:int"};
const std::vector<DtypeSet> kGradTypes = {kRealTypes, kRealTypes, kIntTypes};
const std::vector<DtypeSet> kShapeFirst = {kIntTypes, kFloatTypes};

SIM_OP(MaxPoolWithArgmaxV3)
    .inputs(1)
    .outputs(2)
    .dtypes(kRealTypes)
    .attrs(kMaxAttrs)
    .require({"ksize", "strides", "pads"})
    .image_formats()
    .run(max_pool);
SIM_OP(MaxPoolGradWithArgmaxV3)
    .inputs(3)
    .dtypes(kGradTypes)
    .attrs(kMaxAttrs)
    .require({"ksize", "strides", "pads"})
    .image_formats()
    .run(max_pool_grad);
SIM_OP(MaxPool3DWithArgmaxV2)
    .inputs(1)
    .outputs(2)
    .dtypes(kRealTypes)
    .attrs(kMaxAttrs)
    .require({"ksize", "strides", "pads"})
    .run(max_pool_3d);
SIM_OP(MaxPool3DGradWithArgmax)
    .inputs(3)
    .dtypes(kGradTypes)
    .attrs(kMaxGrad3dAttrs)
    .require({"ksize", "strides", "pads"})
    .run(max_pool_3d_grad);
SIM_OP(AvgPoolV2).inputs(1).dtypes(kRealTypes).attrs(kAvgAttrs).require({"ksize", "strides"}).run(avg_pool);
SIM_OP(AvgPoolV2Grad).inputs(2).dtypes(kShapeFirst).attrs(kAvgAttrs).require({"ksize", "strides"}).run(avg_pool_grad);
SIM_OP(AvgPool3D)
    .inputs(1)
    .dtypes(kRealTypes)
    .attrs(kAvg3dAttrs)
    .require({"ksize", "strides", "pads"})
    .run(avg_pool_3d);
SIM_OP(AvgPool3DGrad)
    .inputs(2)
    .dtypes(kShapeFirst)
    .attrs(kAvg3dAttrs)
    .require({"ksize", "strides", "pads"})
    .run(avg_pool_3d_grad);
SIM_OP(AdaptiveAvgPool2d)
    .inputs(1)
    .dtypes(kFloatTypes)
    .attrs({"output_size:ints"})
    .require({"output_size"})
    .run(adaptive_avg_pool);
SIM_OP(AdaptiveAvgPool2dGrad)
    .inputs(1)
    .dtypes(kFloatTypes)
    .attrs({"orig_input_shape:ints"})
    .require({"orig_input_shape"})
    .run(adaptive_avg_pool_grad);
SIM_OP(AdaptiveMaxPool2d)
    .inputs(1)
    .outputs(2)
    .dtypes(kFloatTypes)
    .attrs({"output_size:ints"})
    .require({"output_size"})
    .run(adaptive_max_pool);
SIM_OP(AdaptiveMaxPool2dGrad).inputs(3).dtypes({kFloatTypes, kFloatTypes, kIntTypes}).run(adaptive_max_pool_grad);

}  // namespace
}  // namespace acl_sim
