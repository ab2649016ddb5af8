// Conv2D, Conv3D, their transposed forms and gradients. fp32 images of one group run as matrix products on
// channels-last rows (conv_rows.h), some of bf16 too (conv_bf16.h); everything else through libtorch's convolutions, on
// channels-last aliases.

#include "exec/compilation/choice.h"
#include "ops/convolution/conv_bf16.h"
#include "ops/convolution/conv_rows.h"
#include "ops/matmul/cube.h"

namespace acl_sim {
namespace {

struct ConvAttrs {
  std::vector<int64_t> stride, padding, dilation, output_padding;
  int64_t groups = 1;
};

// Whether the operator speaks of [N, H, W, C] and [H, W, C, O].
bool channels_behind(const Attrs& attrs) {
  const std::string format = attrs.text("data_format", "NCHW");
  return format == "NHWC" || format == "NDHWC";
}

// The spatial part of an attribute that may also list N and C.
std::vector<int64_t> spatial_part(std::vector<int64_t> values, int64_t rank, int64_t otherwise, bool behind) {
  if (behind && static_cast<int64_t>(values.size()) == rank + 2) {
    values.pop_back();
  }
  if (values.empty()) {
    return std::vector<int64_t>(rank, otherwise);
  }
  if (static_cast<int64_t>(values.size()) < rank) {
    refuse("an attribute lists " + std::to_string(values.size()) + " values for " + std::to_string(rank) +
           " spatial dimensions");
  }
  return {values.end() - rank, values.end()};
}

ConvAttrs read_attrs(OpContext& c, int64_t rank) {
  const Attrs& attrs = c.attrs();
  ConvAttrs a;
  const bool behind = channels_behind(attrs);
  a.stride = spatial_part(attrs.integers("strides"), rank, 1, behind);
  a.dilation = spatial_part(attrs.integers("dilations"), rank, 1, behind);
  a.output_padding = spatial_part(
      attrs.has("output_padding") ? attrs.integers("output_padding") : std::vector<int64_t>{}, rank, 0, behind);
  a.groups = attrs.integer("groups", 1);
  const std::vector<int64_t> pads = attrs.integers("pads");
  if (pads.empty()) {
    a.padding.assign(rank, 0);
  } else if (static_cast<int64_t>(pads.size()) == 2 * rank) {
    for (int64_t i = 0; i < rank; ++i) {
      if (pads[2 * i] != pads[2 * i + 1]) {
        refuse("pads differ between the two sides of a dimension");
      }
      a.padding.push_back(pads[2 * i]);
    }
  } else {
    refuse("pads must list two values per spatial dimension");
  }
  return a;
}

// x, filter and y in logical dims; for gradients the missing one is only a shape.
ConvShape shape_of(at::IntArrayRef x, at::IntArrayRef w, at::IntArrayRef y, const ConvAttrs& a) {
  return {x[0], x[1],        x[2],        x[3],         w[0],         y[2],          y[3],         w[2],
          w[3], a.stride[0], a.stride[1], a.padding[0], a.padding[1], a.dilation[0], a.dilation[1]};
}

bool runs_on_rows(const at::Tensor& x, const ConvAttrs& a) { return is_image(x) && a.groups == 1; }

// Few channels make short gathered runs; there libtorch's direct convolution is the faster one.
bool gathers_well(const ConvShape& s) { return s.pointwise() || s.kw * s.c >= 256 || (s.kh == 1 && s.kw == 1); }

// Note [Choices]: by matrix products on rows, or by libtorch's convolutions.
SIM_KERNELS(Conv2D, "rows", "direct");
SIM_KERNELS(Conv2DBackpropInput, "rows", "direct");
SIM_KERNELS(Conv2DBackpropFilter, "rows", "direct");

std::optional<bool> chosen_by_rows(const OpContext& c) {
  const auto kernel = chosen_kernel(c);
  return kernel ? std::optional<bool>(*kernel == 0) : std::nullopt;
}

bool by_rows(const OpContext& c, const ConvShape& s) { return chosen_by_rows(c).value_or(gathers_well(s)); }

// An image of bf16 that libtorch multiplies as it is.
bool is_bf16_image(const at::Tensor& t) {
  return is_image(t) && t.scalar_type() == at::kBFloat16 && t.numel() > 0 && multiplies_bf16();
}

bool computes_in_float(const at::Tensor& t) { return t.scalar_type() == at::kFloat || is_low_precision(t); }

// An image operand in channels-last, as the cube unit multiplies it; other ranks and integers as they are.
at::Tensor operand(OpContext& c, size_t i) {
  const at::Tensor t = c.in_any(i);
  return cube_operand(c, is_image(t) && t.is_floating_point() ? c.in_channels_last(i) : c.in(i));
}

// Where the result goes: output memory itself, or fp32 scratch which store() narrows into it.
at::Tensor float_target(OpContext& c, at::ScalarType dtype) {
  at::Tensor y = c.out_channels_last(0);
  return dtype == at::kFloat ? y : at::empty(y.sizes(), y.options().dtype(at::kFloat), at::MemoryFormat::ChannelsLast);
}

void store(OpContext& c, const at::Tensor& result, at::ScalarType dtype) {
  if (dtype != at::kFloat) {
    c.out_channels_last(0).copy_(result);
  }
}

void convolve(OpContext& c, bool transposed, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
              const ConvAttrs& a, at::ScalarType dtype) {
  if (x.scalar_type() == dtype) {
    c.place_next_allocation(0);
  }
  at::Tensor y =
      at::convolution(x, w, some(bias), a.stride, a.padding, a.dilation, transposed, a.output_padding, a.groups);
  c.set_out(0, y.scalar_type() == dtype ? y : y.to(dtype));
}

void conv_forward_op(OpContext& c) {
  const at::Tensor x0 = c.in_any(0);
  const at::ScalarType dtype = x0.scalar_type();
  const ConvAttrs a = read_attrs(c, x0.dim() - 2);
  if (is_bf16_image(x0) && c.in_any(1).scalar_type() == dtype) {
    const at::Tensor bias = optional_in(c, 2), x = c.in_channels_last(0), w = c.in_channels_last(1);
    if (!bias.defined() && a.groups == 1) {
      const at::Tensor y = c.out_channels_last(0);
      if (bf16_forward(shape_of(x.sizes(), w.sizes(), y.sizes(), a), x, w, y, chosen_by_rows(c))) return;
    }
    return convolve(c, false, x, w, bias.defined() ? bias.to(dtype) : bias, a, dtype);
  }
  const at::Tensor x = operand(c, 0), w = operand(c, 1), bias = widen(optional_in(c, 2));
  if (runs_on_rows(x, a) && computes_in_float(x)) {
    const at::Tensor target = float_target(c, dtype);
    const ConvShape s = shape_of(x.sizes(), w.sizes(), target.sizes(), a);
    if (by_rows(c, s)) {
      conv_forward(s, x.const_data_ptr<float>(), w.const_data_ptr<float>(),
                   bias.defined() ? bias.const_data_ptr<float>() : nullptr, target.mutable_data_ptr<float>());
      store(c, target, dtype);
      return;
    }
  }
  convolve(c, false, x, w, bias, a, dtype);
}

void conv_transpose_op(OpContext& c) {
  const at::Tensor x0 = c.in_any(1);
  const ConvAttrs a = read_attrs(c, x0.dim() - 2);
  convolve(c, true, operand(c, 1), operand(c, 2), widen(optional_in(c, 3)), a, x0.scalar_type());
}

// One gradient through libtorch's backward; the operand that it does not need is a shape without memory.
void gradient(OpContext& c, bool of_input, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
              const ConvAttrs& a, at::ScalarType dtype) {
  if (dy.scalar_type() == dtype) {
    c.place_next_allocation(0);
  }
  auto [dx, dw, db] =
      at::convolution_backward(dy, x, w, at::OptionalIntArrayRef(), a.stride, a.padding, a.dilation, false,
                               std::vector<int64_t>(a.stride.size(), 0), a.groups, {of_input, !of_input, false});
  const at::Tensor& result = of_input ? dx : dw;
  c.set_out(0, result.scalar_type() == dtype ? result : result.to(dtype));
}

at::Tensor shape_only(at::IntArrayRef sizes, const at::Tensor& like) {
  if (sizes.size() == 4) {
    return at::empty(sizes, like.options(), at::MemoryFormat::ChannelsLast);
  }
  return at::empty(sizes, like.options());
}

// The sizes of an image or of a filter that come as an operand, as NCHW.
std::vector<int64_t> image_sizes(OpContext& c, size_t i) {
  const std::vector<int64_t> d = c.in_values(i);
  return d.size() == 4 && channels_behind(c.attrs()) ? std::vector<int64_t>{d[0], d[3], d[1], d[2]} : d;
}
std::vector<int64_t> filter_sizes(OpContext& c, size_t i) {
  const std::vector<int64_t> d = c.in_values(i);
  return d.size() == 4 && channels_behind(c.attrs()) ? std::vector<int64_t>{d[3], d[2], d[0], d[1]} : d;
}

void conv_backprop_input_op(OpContext& c) {
  const at::Tensor dy0 = c.in_any(2);
  const at::ScalarType dtype = dy0.scalar_type();
  const ConvAttrs a = read_attrs(c, dy0.dim() - 2);
  if (is_bf16_image(dy0) && c.in_any(1).scalar_type() == dtype) {
    const at::Tensor w = c.in_channels_last(1), dy = c.in_channels_last(2);
    if (a.groups == 1) {
      const at::Tensor dx = c.out_channels_last(0);
      if (bf16_backward_data(shape_of(dx.sizes(), w.sizes(), dy.sizes(), a), dy, w, dx, chosen_by_rows(c))) return;
    }
    return gradient(c, true, dy, shape_only(image_sizes(c, 0), dy0), w, a, dtype);
  }
  const at::Tensor w = operand(c, 1), dy = operand(c, 2);
  if (runs_on_rows(dy, a) && computes_in_float(dy)) {
    const at::Tensor target = float_target(c, dtype);
    const ConvShape s = shape_of(target.sizes(), w.sizes(), dy.sizes(), a);
    if (by_rows(c, s)) {
      conv_backward_data(s, dy.const_data_ptr<float>(), w.const_data_ptr<float>(), target.mutable_data_ptr<float>());
      store(c, target, dtype);
      return;
    }
  }
  gradient(c, true, dy, shape_only(image_sizes(c, 0), dy), w, a, dtype);
}

void conv_backprop_filter_op(OpContext& c) {
  const at::Tensor x0 = c.in_any(0);
  const at::ScalarType dtype = x0.scalar_type();
  const ConvAttrs a = read_attrs(c, x0.dim() - 2);
  if (is_bf16_image(x0) && c.in_any(2).scalar_type() == dtype) {
    const at::Tensor x = c.in_channels_last(0), dy = c.in_channels_last(2);
    if (a.groups == 1) {
      const at::Tensor dw = c.out_channels_last(0);
      if (bf16_backward_filter(shape_of(x.sizes(), dw.sizes(), dy.sizes(), a), x, dy, dw, chosen_by_rows(c))) return;
    }
    return gradient(c, false, dy, x, shape_only(filter_sizes(c, 1), x0), a, dtype);
  }
  const at::Tensor x = operand(c, 0), dy = operand(c, 2);
  if (runs_on_rows(x, a) && computes_in_float(x)) {
    const at::Tensor target = float_target(c, dtype);
    const ConvShape s = shape_of(x.sizes(), target.sizes(), dy.sizes(), a);
    if (by_rows(c, s)) {
      conv_backward_filter(s, x.const_data_ptr<float>(), dy.const_data_ptr<float>(), target.mutable_data_ptr<float>());
      store(c, target, dtype);
      return;
    }
  }
  gradient(c, false, dy, x, shape_only(filter_sizes(c, 1), x), a, dtype);
}

// Sums over everything but the channels.
void bias_add_grad_op(OpContext& c) {
  const at::Tensor dy = c.in_any(0);
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < dy.dim(); ++d) {
    if (d != 1) {
      dims.push_back(d);
    }
  }
  at::Tensor db = c.out(0);
  at::sum_out(db, dy, dims, false, db.scalar_type());
}

const std::vector<std::string> kAttrs = {"strides:ints", "pads:ints",       "dilations:ints",
                                         "groups:int",   "data_format:str", "offset_x:int"};
const std::vector<std::string> kTransposeAttrs = {"strides:ints",    "pads:ints",    "dilations:ints",     "groups:int",
                                                  "data_format:str", "offset_x:int", "output_padding:ints"};
const std::vector<std::string> kGradAttrs = {"strides:ints", "pads:ints", "dilations:ints", "groups:int",
                                             "data_format:str"};
const DtypeSet kForward = kFloatTypes | dtype_bit(ACL_INT64);
const std::vector<DtypeSet> kSizeFirst = {kIntTypes, kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes};
const std::vector<DtypeSet> kSizeSecond = {kFloatTypes, kIntTypes, kFloatTypes};

SIM_OP(Conv2D)
    .inputs(2, 4)
    .dtypes(kForward)
    .attrs(kAttrs)
    .require({"strides", "pads"})
    .image_formats()
    .on_cube(CubeClass::Conv)
    .run(conv_forward_op);
SIM_OP(Conv3D)
    .inputs(2, 4)
    .dtypes(kForward)
    .attrs(kAttrs)
    .require({"strides", "pads"})
    .on_cube(CubeClass::Conv)
    .run(conv_forward_op);
SIM_OP(Conv2DTranspose)
    .inputs(3, 5)
    .dtypes({kIntTypes, kForward})
    .attrs(kTransposeAttrs)
    .require({"strides", "pads"})
    .on_cube(CubeClass::Conv)
    .run(conv_transpose_op);
SIM_OP(Conv3DTranspose)
    .inputs(3, 5)
    .dtypes({kIntTypes, kForward})
    .attrs(kTransposeAttrs)
    .require({"strides", "pads"})
    .on_cube(CubeClass::Conv)
    .run(conv_transpose_op);
SIM_OP(Conv2DBackpropInput)
    .inputs(3)
    .dtypes(kSizeFirst)
    .attrs(kGradAttrs)
    .require({"strides", "pads"})
    .image_formats()
    .on_cube(CubeClass::Conv)
    .run(conv_backprop_input_op);
SIM_OP(Conv3DBackpropInput)
    .inputs(3)
    .dtypes(kSizeFirst)
    .attrs(kGradAttrs)
    .require({"strides", "pads"})
    .on_cube(CubeClass::Conv)
    .run(conv_backprop_input_op);
SIM_OP(Conv2DBackpropFilter)
    .inputs(3)
    .dtypes(kSizeSecond)
    .attrs(kGradAttrs)
    .require({"strides", "pads"})
    .image_formats()
    .on_cube(CubeClass::Conv)
    .run(conv_backprop_filter_op);
SIM_OP(Conv3DBackpropFilter)
    .inputs(3)
    .dtypes(kSizeSecond)
    .attrs(kGradAttrs)
    .require({"strides", "pads"})
    .on_cube(CubeClass::Conv)
    .run(conv_backprop_filter_op);
SIM_OP(BiasAddGrad).inputs(1).dtypes(kFloatTypes).attrs({"data_format:str"}).image_formats().run(bias_add_grad_op);

}  // namespace
}  // namespace acl_sim
