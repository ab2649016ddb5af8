// Convolutions of one to three dimensions, plain and transposed, with their gradients. A gradient of a transposed
// convolution is a plain convolution and the other way round, so six IR operators per rank cover everything.

#include <ATen/native/ConvUtils.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/native/npu/frame/inference/Windows.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/zeros.h>
#include <NPUNativeFunctions.h>

#include <algorithm>
#include <tuple>

namespace at::native::npu {
namespace {

// Everything but the operands. One-dimensional convolutions run as two-dimensional ones of height 1.
struct ConvParams {
  DimVector stride, padding, dilation, output_padding;
  int64_t groups;
  bool transposed;

  ConvParams(size_t rank, IntArrayRef s, IntArrayRef p, IntArrayRef d, IntArrayRef o, int64_t g, bool t)
      : stride(spatial(s, rank)),
        padding(spatial(p, rank)),
        dilation(spatial(d, rank)),
        output_padding(spatial(o, rank)),
        groups(g),
        transposed(t) {
    if (rank == 1) {
      stride.insert(stride.begin(), 1);
      padding.insert(padding.begin(), 0);
      dilation.insert(dilation.begin(), 1);
      output_padding.insert(output_padding.begin(), 0);
    }
  }
  bool volume() const { return stride.size() == 3; }
  void attach(OpCommand& cmd) const {
    cmd.Attr("strides", with_batch(stride))
        .Attr("pads", both_sides(padding))
        .Attr("dilations", with_batch(dilation))
        .Attr("groups", groups)
        .Attr("data_format", volume() ? "NCDHW" : "NCHW");
  }
};

DimVector lifted_sizes(const Tensor& t) {
  DimVector sizes(t.sizes().begin(), t.sizes().end());
  if (t.dim() == 3) {
    sizes.insert(sizes.begin() + 2, 1);
  }
  return sizes;
}

Tensor lifted(const Tensor& t) { return t.dim() == 3 ? contiguous(t).view(lifted_sizes(t)) : t; }

// y = conv(x, w) + bias
void plain(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvParams& p, const Tensor& y) {
  OpCommand cmd;
  cmd.Name(p.volume() ? "Conv3D" : "Conv2D").Input(x).Input(w);
  if (bias.defined()) {
    cmd.Input(bias);
  }
  cmd.Output(y);
  p.attach(cmd);
  cmd.Run();
}

// y = the data gradient of a convolution with filter w at dy: also the transposed convolution
void backprop_input(const Tensor& dy, const Tensor& w, const ConvParams& p, const Tensor& dx) {
  OpCommand cmd;
  cmd.Name(p.volume() ? "Conv3DBackpropInput" : "Conv2DBackpropInput")
      .Input(dx.sizes(), kInt)
      .Input(w)
      .Input(dy)
      .Output(dx);
  p.attach(cmd);
  cmd.Run();
}

void transpose(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvParams& p, const Tensor& y) {
  OpCommand cmd;
  cmd.Name(p.volume() ? "Conv3DTranspose" : "Conv2DTranspose").Input(y.sizes(), kInt).Input(x).Input(w);
  if (bias.defined()) {
    cmd.Input(bias);
  }
  cmd.Output(y);
  p.attach(cmd);
  cmd.Attr("output_padding", with_batch(p.output_padding)).Run();
}

void backprop_filter(const Tensor& x, const Tensor& dy, const ConvParams& p, const Tensor& dw) {
  OpCommand cmd;
  cmd.Name(p.volume() ? "Conv3DBackpropFilter" : "Conv2DBackpropFilter")
      .Input(x)
      .Input(dw.sizes(), kInt)
      .Input(dy)
      .Output(dw);
  p.attach(cmd);
  cmd.Run();
}

// Note [Channels-last convolutions]
// A channels-last image is described as what its memory holds, an NHWC image; CANN then wants filters as HWCN, so that
// these are turned. A pointwise convolution is a product of matrices whose rows are the pixels, and needs no such
// thing.

bool is_pointwise(const Tensor& w, const ConvParams& p) {
  const auto all = [](IntArrayRef values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == wanted; });
  };
  return p.groups == 1 && w.size(2) == 1 && w.size(3) == 1 && all(p.stride, 1) && all(p.padding, 0) &&
         isFloatingType(w.scalar_type());
}

// [N, H, W, C] of a channels-last tensor, over the same memory; of a filter [O, H, W, C].
DimVector row_dims(const Tensor& t) { return {t.size(0), t.size(2), t.size(3), t.size(1)}; }
Tensor rows(const Tensor& t) {
  const DimVector dims = row_dims(t);
  return alias(t, dims, c10::contiguous_strides(dims), t.storage_offset());
}
DimVector column_dims(const Tensor& w) { return {w.size(2), w.size(3), w.size(1), w.size(0)}; }
DimVector matrix_dims(const Tensor& t) { return {t.size(0) * t.size(2) * t.size(3), t.size(1)}; }

void attach_rows(OpCommand& cmd, const ConvParams& p) {
  cmd.Attr("strides", IntArrayRef({1, p.stride[0], p.stride[1], 1}))
      .Attr("pads", both_sides(p.padding))
      .Attr("dilations", IntArrayRef({1, p.dilation[0], p.dilation[1], 1}))
      .Attr("groups", p.groups)
      .Attr("data_format", "NHWC");
}

// The filter as HWCN.
Tensor columns(const Tensor& w) {
  const DimVector dims = column_dims(w);
  const Tensor out = empty_npu(dims, w.scalar_type(), w.device());
  OpCommand cmd;
  cmd.Name("Transpose").InputAs(rows(w), row_dims(w)).Input(IntArrayRef({1, 2, 3, 0}));
  cmd.OutputAs(out, dims, ACL_FORMAT_HWCN).Run();
  return out;
}

// The same three as above for channels-last operands and results.
void plain_rows(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvParams& p, const Tensor& y) {
  OpCommand cmd;
  if (is_pointwise(w, p)) {
    cmd.Name("MatMulV2").InputAs(rows(x), matrix_dims(x)).InputAs(rows(w), matrix_dims(w));
    if (bias.defined()) cmd.Input(bias);
    cmd.OutputAs(y, matrix_dims(y)).Attr("transpose_x1", false).Attr("transpose_x2", true).Run();
    return;
  }
  cmd.Name("Conv2D").InputAs(rows(x), row_dims(x), ACL_FORMAT_NHWC);
  cmd.InputAs(columns(w), column_dims(w), ACL_FORMAT_HWCN);
  if (bias.defined()) cmd.Input(bias);
  cmd.OutputAs(y, row_dims(y), ACL_FORMAT_NHWC);
  attach_rows(cmd, p);
  cmd.Run();
}

void backprop_input_rows(const Tensor& dy, const Tensor& w, const ConvParams& p, const Tensor& dx) {
  OpCommand cmd;
  if (is_pointwise(w, p)) {
    cmd.Name("MatMulV2").InputAs(rows(dy), matrix_dims(dy)).InputAs(rows(w), matrix_dims(w));
    cmd.OutputAs(dx, matrix_dims(dx)).Attr("transpose_x1", false).Attr("transpose_x2", false).Run();
    return;
  }
  cmd.Name("Conv2DBackpropInput").Input(row_dims(dx), kInt).InputAs(columns(w), column_dims(w), ACL_FORMAT_HWCN);
  cmd.InputAs(rows(dy), row_dims(dy), ACL_FORMAT_NHWC).OutputAs(dx, row_dims(dx), ACL_FORMAT_NHWC);
  attach_rows(cmd, p);
  cmd.Run();
}

void backprop_filter_rows(const Tensor& x, const Tensor& dy, const ConvParams& p, const Tensor& dw) {
  OpCommand cmd;
  if (is_pointwise(dw, p)) {
    cmd.Name("MatMulV2").InputAs(rows(dy), matrix_dims(dy)).InputAs(rows(x), matrix_dims(x));
    cmd.OutputAs(dw, matrix_dims(dw)).Attr("transpose_x1", true).Attr("transpose_x2", false).Run();
    return;
  }
  const DimVector dims = column_dims(dw);
  const Tensor turned = empty_npu(dims, dw.scalar_type(), dw.device());
  cmd.Name("Conv2DBackpropFilter").InputAs(rows(x), row_dims(x), ACL_FORMAT_NHWC).Input(dims, kInt);
  cmd.InputAs(rows(dy), row_dims(dy), ACL_FORMAT_NHWC).OutputAs(turned, dims, ACL_FORMAT_HWCN);
  attach_rows(cmd, p);
  cmd.Run();
  OpCommand back;
  back.Name("Transpose").InputAs(turned, dims, ACL_FORMAT_HWCN).Input(IntArrayRef({3, 0, 1, 2}));
  back.OutputAs(dw, row_dims(dw)).Run();
}

// Channels-last if either operand's strides are: torch/_npu_meta.py tells so, too.
MemoryFormat format_of_result(const Tensor& x, const Tensor& w) {
  const MemoryFormat format = x.suggest_memory_format();
  return format == MemoryFormat::Contiguous ? w.suggest_memory_format() : format;
}

bool same_image(IntArrayRef a, IntArrayRef b) { return a.slice(2) == b.slice(2); }

// The part of `whole` that begins at its first element and has `sizes`.
Tensor corner(Tensor whole, IntArrayRef sizes) {
  for (size_t d = 2; d < sizes.size(); ++d) {
    whole = whole.narrow(static_cast<int64_t>(d), 0, sizes[d]);
  }
  return whole;
}

}  // namespace

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                   int64_t groups) {
  DeviceOf guard(input);
  TORCH_CHECK(input.dim() >= 3 && input.dim() <= 5, "convolution: expected an input of 3 to 5 dimensions, got ",
              input.sizes());
  TORCH_CHECK(std::all_of(dilation.begin(), dilation.end(), [](int64_t d) { return d > 0; }),
              "dilation should be greater than zero, but got ", dilation);
  check_dtype(input.scalar_type(), kDtypeFloat | kDtypeInt64, "convolution");
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "Input type (", input.toString(), ") and weight type (",
              weight.toString(), ") should be the same");
  const bool biased = bias.has_value() && bias->defined();
  // The 1.5 fork's transposed convolution of halves takes a bias in fp32.
  const bool wide_bias =
      biased && transposed && isReducedFloatingType(input.scalar_type()) && bias->scalar_type() == kFloat;
  TORCH_CHECK(!biased || wide_bias || bias->scalar_type() == input.scalar_type(), "Input type (", input.toString(),
              ") and bias type (", biased ? bias->toString() : "", ") should be the same");
  for (int64_t d = 2; d < weight.dim(); ++d) {
    TORCH_CHECK(weight.size(d) > 0, "convolution: kernel size should be greater than zero, but got a weight of shape ",
                weight.sizes());
  }
  const Tensor x = lifted(input), w = lifted(weight);
  const Tensor b = wide_bias ? cast(*bias, input.scalar_type()) : bias.value_or(Tensor());
  const ConvParams p(static_cast<size_t>(input.dim() - 2), stride, padding, dilation, output_padding, groups,
                     transposed);
  DimVector sizes;
  if (transposed) {
    for (size_t d = 0; d < p.output_padding.size(); ++d) {
      TORCH_CHECK(p.output_padding[d] < p.stride[d] || p.output_padding[d] < p.dilation[d],
                  "output padding must be smaller than either stride or dilation, but got output_padding ",
                  output_padding, ", stride ", stride, " and dilation ", dilation);
    }
    const auto out = conv_input_size(x.sizes(), w.sizes(), p.padding, p.output_padding, p.stride, p.dilation, groups);
    sizes.assign(out.begin(), out.end());
  } else {
    const auto out = conv_output_size(x.sizes(), w.sizes(), p.padding, p.stride, p.dilation);
    sizes.assign(out.begin(), out.end());
  }
  const MemoryFormat format = format_of_result(x, w);
  const Tensor y = new_output(sizes, {}, x.options().memory_format(format));
  if (y.numel() > 0) {
    if (transposed) {
      transpose(x, w, b, p, y);
    } else if (format == MemoryFormat::ChannelsLast) {
      plain_rows(x.contiguous(format), w.contiguous(format), b, p, y);
    } else {
      plain(x, w, b, p, y);
    }
  }
  return input.dim() == 3 ? y.squeeze(2) : y;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad_output, const Tensor& input,
                                                        const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
                                                        IntArrayRef dilation, bool transposed,
                                                        IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> output_mask) {
  DeviceOf guard(input);
  Tensor x = lifted(input), w = lifted(weight), dy = lifted(grad_output);
  const ConvParams p(static_cast<size_t>(input.dim() - 2), stride, padding, dilation, output_padding, groups,
                     transposed);
  const bool empty = dy.numel() == 0 || x.numel() == 0;
  const MemoryFormat format = format_of_result(x, w);
  const bool in_rows = !transposed && !empty && format == MemoryFormat::ChannelsLast;
  if (in_rows) {
    x = x.contiguous(format);
    dy = dy.contiguous(format);
    w = w.contiguous(format);
  }
  const auto fresh = [&](const Tensor& like) {
    const Tensor gradient = new_output(like.sizes(), {}, like.options().memory_format(format));
    if (empty) gradient.zero_();
    return gradient;
  };
  // What convolving dy gives. It exceeds x where output_padding reaches the stride (allowed below the dilation): the
  // rest has no counterpart in x.
  DimVector natural;
  if (transposed && !empty) {
    const auto sizes = conv_output_size(dy.sizes(), w.sizes(), p.padding, p.stride, p.dilation);
    natural.assign(sizes.begin(), sizes.end());
    natural[1] = x.size(1);
  }
  Tensor dx, dw, db;
  if (output_mask[0]) {
    dx = fresh(x);
    if (!empty) {
      if (in_rows) {
        backprop_input_rows(dy, w, p, dx);
      } else if (transposed && !same_image(natural, x.sizes())) {
        const Tensor whole = empty_npu(natural, x.scalar_type(), x.device());
        plain(dy, w, Tensor(), p, whole);
        dx.copy_(corner(whole, x.sizes()));
      } else {
        transposed ? plain(dy, w, Tensor(), p, dx) : backprop_input(dy, w, p, dx);
      }
    }
    dx = input.dim() == 3 ? dx.squeeze(2) : dx;
  }
  if (output_mask[1]) {
    dw = fresh(w);
    if (!empty) {
      if (in_rows) {
        backprop_filter_rows(x, dy, p, dw);
      } else if (transposed && !same_image(natural, x.sizes())) {
        const Tensor whole = at::zeros(natural, x.options());
        corner(whole, x.sizes()).copy_(x);
        backprop_filter(dy, whole, p, dw);
      } else {
        transposed ? backprop_filter(dy, x, p, dw) : backprop_filter(x, dy, p, dw);
      }
    }
    dw = input.dim() == 3 ? dw.squeeze(2) : dw;
  }
  if (output_mask[2]) {
    db = empty ? at::zeros({dy.size(1)}, dy.options()) : empty_npu({dy.size(1)}, dy.scalar_type(), dy.device());
    if (!empty) {
      OpCommand cmd;
      cmd.Name("BiasAddGrad");
      if (in_rows) {
        cmd.InputAs(rows(dy), row_dims(dy), ACL_FORMAT_NHWC).Output(db).Attr("data_format", "NHWC").Run();
      } else {
        cmd.Input(dy).Output(db).Attr("data_format", p.volume() ? "NCDHW" : "NCHW").Run();
      }
    }
  }
  return {dx, dw, db};
}

Tensor nnpack_convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                          IntArrayRef padding, IntArrayRef stride) {
  return at::convolution(input, weight, bias, stride, padding, {1, 1}, /*transposed=*/false, {0, 0}, 1);
}

}  // namespace at::native::npu
