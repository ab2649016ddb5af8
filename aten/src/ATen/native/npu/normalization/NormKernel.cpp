// Batch, layer and group normalisation with their gradients.

#include <ATen/AccumulateType.h>
#include <ATen/native/Resize.h>
#include <ATen/native/layer_norm.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Suggested.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <NPUNativeFunctions.h>

#include <tuple>

namespace at::native::npu {
namespace {

using Triple = std::tuple<Tensor, Tensor, Tensor>;

Tensor defined(const std::optional<Tensor>& t) { return t.has_value() && t->defined() ? *t : Tensor(); }

ScalarType wide_type(const Tensor& x) { return toAccumulateType(x.scalar_type(), c10::DeviceType::CUDA); }

// Statistics of half-precision data are fp32 where a parameter is, else half as upstream's.
template <class... T>
ScalarType statistics_type(const Tensor& x, const T&... parameters) {
  const auto wide = [&](const std::optional<Tensor>& t) {
    return t.has_value() && t->defined() && t->scalar_type() != x.scalar_type();
  };
  return (wide(parameters) || ...) ? wide_type(x) : x.scalar_type();
}

bool is_batch(const Tensor& x, int64_t n, int64_t c) { return x.dim() >= 2 && x.size(0) == n && x.size(1) == c; }

// Upstream's group norm looks at the number of elements only: any shape stands for n x c x pixels.
Tensor as_batch(const Tensor& x, int64_t n, int64_t c, int64_t pixels) {
  return is_batch(x, n, c) ? x : x.contiguous().view({n, c, pixels});
}

// An affine or running operand that the IR operator needs even where the module has none.
Tensor or_filled(const Tensor& t, int64_t channels, bool ones, const Tensor& x) {
  if (t.defined()) {
    return t;
  }
  const TensorOptions options = x.options().dtype(wide_type(x));
  return ones ? at::ones({channels}, options) : at::zeros({channels}, options);
}

void check_parameters(const char* op, const Tensor& input, const std::optional<Tensor>& weight,
                      const std::optional<Tensor>& bias) {
  check_parameter(op, "weight", input, weight);
  check_parameter(op, "bias", input, bias);
}

void check_channels(const Tensor& t, int64_t channels, const char* name) {
  TORCH_CHECK(!t.defined() || t.numel() == channels, name, " should contain ", channels, " elements not ",
              t.defined() ? t.numel() : 0);
}

// An image whose channels are innermost in memory is to batch norm as many images of one pixel, so that nothing is
// copied. `others` are operands of the same sizes that must lie as x does.
template <class... T>
bool has_channel_rows(const Tensor& x, const T&... others) {
  if (x.is_contiguous() || (x.dim() != 4 && x.dim() != 5)) return false;
  const MemoryFormat format = x.dim() == 4 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d;
  return x.is_contiguous(format) && (others.is_contiguous(format) && ...);
}
DimVector row_dims(const Tensor& x) { return {x.numel() / x.size(1), x.size(1), 1, 1}; }
Tensor rows(const Tensor& x) {
  const DimVector dims = row_dims(x);
  return alias(x, dims, c10::contiguous_strides(dims), x.storage_offset());
}

// Normalises into `y`; mean and rstd are written when training.
void normalize(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
               const Tensor& running_var, bool training, double momentum, double eps, const Tensor& y,
               const Tensor& mean, const Tensor& rstd) {
  const int64_t channels = x.size(1);
  check_channels(weight, channels, "weight");
  check_channels(bias, channels, "bias");
  check_channels(running_mean, channels, "running_mean");
  check_channels(running_var, channels, "running_var");
  const Tensor scale = or_filled(weight, channels, true, x), shift = or_filled(bias, channels, false, x);
  if (x.numel() == 0) {
    return;
  }
  if (has_channel_rows(x, y)) {
    normalize(rows(x), weight, bias, running_mean, running_var, training, momentum, eps, rows(y), mean, rstd);
    return;
  }
  OpCommand cmd;
  if (training) {
    const Tensor center = or_filled(running_mean, channels, false, x), var = or_filled(running_var, channels, true, x);
    cmd.Name("BatchNormV3")
        .Input(x)
        .Input(scale)
        .Input(shift)
        .Input(center)
        .Input(var)
        .Output(y)
        .Output(center)
        .Output(var)
        .Output(mean)
        .Output(rstd)
        .Attr("epsilon", eps)
        .Attr("momentum", momentum)
        .Attr("is_training", true)
        .Run();
  } else {
    TORCH_CHECK(running_mean.defined() && running_var.defined(),
                "running_mean and running_var must be defined in evaluation mode");
    cmd.Name("BNInfer")
        .Input(x)
        .Input(scale)
        .Input(shift)
        .Input(running_mean)
        .Input(running_var)
        .Output(y)
        .Attr("epsilon", eps);
    cmd.Run();
  }
}

}  // namespace

Triple batch_norm(const Tensor& input, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                  const std::optional<Tensor>& running_mean, const std::optional<Tensor>& running_var, bool training,
                  double momentum, double eps) {
  DeviceOf guard(input);
  TORCH_CHECK(input.dim() >= 2, "batch_norm: expected an input of at least 2 dimensions, got ", input.sizes());
  TORCH_CHECK(!training || input.numel() > 0,
              "input tensor must have at least one element, but got input_sizes = ", input.sizes());
  check_parameters("batch_norm", input, weight, bias);
  check_parameter("batch_norm", "running_mean", input, running_mean);
  check_parameter("batch_norm", "running_var", input, running_var);
  check_vector("batch_norm", "running_mean", running_mean, input.size(1));
  check_vector("batch_norm", "running_var", running_var, input.size(1));
  const int64_t saved = training ? input.size(1) : 0;
  const Tensor y = empty_suggested(input);
  const ScalarType type = statistics_type(input, weight, bias, running_mean, running_var);
  const Tensor mean = empty_npu({saved}, type, input.device());
  const Tensor rstd = empty_npu({saved}, type, input.device());
  normalize(input, defined(weight), defined(bias), defined(running_mean), defined(running_var), training, momentum, eps,
            y, mean, rstd);
  return {y, mean, rstd};
}

std::tuple<Tensor&, Tensor&, Tensor&> batch_norm_out(const Tensor& input, const std::optional<Tensor>& weight,
                                                     const std::optional<Tensor>& bias,
                                                     const std::optional<Tensor>& running_mean,
                                                     const std::optional<Tensor>& running_var, bool training,
                                                     double momentum, double eps, Tensor& out, Tensor& save_mean,
                                                     Tensor& save_invstd) {
  DeviceOf guard(input);
  const auto check = [](const Tensor& given, ScalarType type) {
    TORCH_CHECK(given.scalar_type() == type, "native_batch_norm: expected scalar type ", type, " but found ",
                given.scalar_type(), " in out=");
  };
  const ScalarType type = statistics_type(input, weight, bias, running_mean, running_var);
  check(out, input.scalar_type());
  check(save_mean, type);
  check(save_invstd, type);
  for (const Tensor* saved : {&save_mean, &save_invstd}) {
    if (training) {
      at::native::resize_output(*saved, {input.size(1)});
    } else {
      // Not written, but looked at, as on the CPU.
      TORCH_CHECK(saved->dim() == 1, "native_batch_norm: expected out= of 1 dimension for statistics, but it has ",
                  saved->dim());
    }
  }
  at::native::resize_output(out, input.sizes());
  normalize(input, defined(weight), defined(bias), defined(running_mean), defined(running_var), training, momentum, eps,
            out, save_mean, save_invstd);
  return {out, save_mean, save_invstd};
}

Triple batch_norm_legit(const Tensor& input, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                        Tensor& running_mean, Tensor& running_var, bool training, double momentum, double eps) {
  return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

Triple batch_norm_no_stats(const Tensor& input, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                           bool training, double momentum, double eps) {
  return batch_norm(input, weight, bias, std::nullopt, std::nullopt, training, momentum, eps);
}

Triple batch_norm_backward(const Tensor& grad_out, const Tensor& input, const std::optional<Tensor>& weight,
                           const std::optional<Tensor>& running_mean, const std::optional<Tensor>& running_var,
                           const std::optional<Tensor>& save_mean, const std::optional<Tensor>& save_invstd, bool train,
                           double eps, std::array<bool, 3> output_mask) {
  DeviceOf guard(input);
  const int64_t channels = input.size(1);
  const Tensor scale = or_filled(defined(weight), channels, true, input);
  const Tensor dx = empty_suggested(input), dweight = empty_as(scale), dbias = empty_as(scale);
  if (input.numel() == 0) {
    dweight.zero_();
    dbias.zero_();
  } else {
    const bool in_rows = has_channel_rows(input, dx);
    const Tensor dy = in_rows ? grad_out.contiguous(input.suggest_memory_format()) : grad_out;
    OpCommand cmd;
    cmd.Name("BatchNormGradV3").Input(in_rows ? rows(dy) : dy).Input(in_rows ? rows(input) : input).Input(scale);
    for (const auto* t : {&running_mean, &running_var, &save_mean, &save_invstd}) {
      const Tensor statistic = defined(*t);
      // Evaluation mode saves empty statistics; the operator has an operand even where it reads none.
      cmd.Input(statistic.defined() && statistic.numel() > 0 ? statistic : scale);
    }
    cmd.Output(in_rows ? rows(dx) : dx)
        .Output(dweight)
        .Output(dbias)
        .Attr("epsilon", eps)
        .Attr("is_training", train)
        .Run();
  }
  return {output_mask[0] ? dx : Tensor(), output_mask[1] ? dweight : Tensor(), output_mask[2] ? dbias : Tensor()};
}

Triple layer_norm(const Tensor& input, IntArrayRef normalized_shape, const std::optional<Tensor>& weight,
                  const std::optional<Tensor>& bias, double eps) {
  DeviceOf guard(input);
  _check_layer_norm_inputs(input, normalized_shape, defined(weight), defined(bias));
  check_parameters("layer_norm", input, weight, bias);
  const int64_t rank = static_cast<int64_t>(normalized_shape.size()), outer = input.dim() - rank;
  DimVector sizes(input.sizes().begin(), input.sizes().begin() + outer);
  sizes.append(static_cast<size_t>(rank), 1);
  const Tensor y = empty_as(input);
  const ScalarType type = statistics_type(input, weight, bias);
  const Tensor mean = empty_npu(sizes, type, input.device());
  const Tensor rstd = empty_npu(sizes, type, input.device());
  if (input.numel() > 0) {
    OpCommand cmd;
    cmd.Name("LayerNormV4").Input(input).Input(normalized_shape).InputOptional(weight).InputOptional(bias);
    cmd.Output(y).Output(mean).Output(rstd).Attr("epsilon", eps).Run();
  }
  return {y, mean, rstd};
}

Triple layer_norm_backward(const Tensor& grad_out, const Tensor& input, IntArrayRef normalized_shape,
                           const Tensor& mean, const Tensor& rstd, const std::optional<Tensor>& weight,
                           const std::optional<Tensor>& bias, std::array<bool, 3> output_mask) {
  DeviceOf guard(input);
  const Tensor gamma = defined(weight);
  const ScalarType type = gamma.defined() ? gamma.scalar_type() : input.scalar_type();
  const Tensor dx = empty_as(input);
  const Tensor dgamma = empty_npu(normalized_shape, type, input.device());
  const Tensor dbeta = empty_npu(normalized_shape, type, input.device());
  if (input.numel() == 0) {
    dgamma.zero_();
    dbeta.zero_();
  } else {
    OpCommand cmd;
    cmd.Name("LayerNormGradV3").Input(grad_out).Input(input).Input(rstd).Input(mean);
    cmd.Input(gamma.defined() ? gamma : at::ones(normalized_shape, input.options()));
    cmd.Output(dx).Output(dgamma).Output(dbeta).Run();
  }
  const bool has_bias = bias.has_value() && bias->defined();
  return {output_mask[0] ? dx : Tensor(), output_mask[1] && gamma.defined() ? dgamma : Tensor(),
          output_mask[2] && has_bias ? dbeta : Tensor()};
}

Triple group_norm(const Tensor& input, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                  int64_t n, int64_t c, int64_t pixels, int64_t group, double eps) {
  DeviceOf guard(input);
  check_parameters("group_norm", input, weight, bias);
  check_vector("group_norm", "weight", weight, c);
  check_vector("group_norm", "bias", bias, c);
  TORCH_CHECK(input.numel() == n * c * pixels, "group_norm: expected an input of ", n, " x ", c, " x ", pixels,
              " elements, but got one of shape ", input.sizes());
  TORCH_CHECK(group > 0, "Expected num groups to be greater than 0, got ", group);
  TORCH_CHECK(c % group == 0,
              "Expected number of channels in input to be divisible by num_groups, but got input of shape ",
              input.sizes(), " and num_groups=", group);
  const auto batch = [&](const Tensor& t) { return as_batch(t, n, c, pixels); };
  const Tensor y = is_batch(input, n, c) ? empty_suggested(input) : empty_as(input);
  const ScalarType type = statistics_type(input, weight, bias);
  const Tensor mean = empty_npu({n, group}, type, input.device());
  const Tensor rstd = empty_npu({n, group}, type, input.device());
  if (input.numel() > 0) {
    OpCommand cmd;
    cmd.Name("GroupNormSilu").Input(batch(input)).InputOptional(weight).InputOptional(bias);
    cmd.Output(batch(y)).Output(mean).Output(rstd).Attr("num_groups", group).Attr("eps", eps);
    cmd.Attr("activate_silu", false).Run();
  }
  return {y, mean, rstd};
}

Triple group_norm_backward(const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& rstd,
                           const std::optional<Tensor>& weight, int64_t n, int64_t c, int64_t pixels, int64_t group,
                           std::array<bool, 3> output_mask) {
  DeviceOf guard(input);
  const Tensor gamma = defined(weight);
  const ScalarType type = gamma.defined() ? gamma.scalar_type() : input.scalar_type();
  const auto batch = [&](const Tensor& t) { return as_batch(t, n, c, pixels); };
  const Tensor dx = is_batch(input, n, c) ? empty_suggested(input) : empty_as(input);
  const Tensor dgamma = empty_npu({c}, type, input.device()), dbeta = empty_npu({c}, type, input.device());
  if (input.numel() == 0) {
    dgamma.zero_();
    dbeta.zero_();
  } else {
    OpCommand cmd;
    cmd.Name("GroupNormGrad").Input(batch(grad_out)).Input(mean).Input(rstd).Input(batch(input));
    cmd.Input(gamma.defined() ? gamma : at::ones({c}, input.options()));
    cmd.Output(batch(dx)).Output(dgamma).Output(dbeta).Attr("num_groups", group).Attr("data_format", "NCHW").Run();
  }
  return {output_mask[0] ? dx : Tensor(), output_mask[1] ? dgamma : Tensor(), output_mask[2] ? dbeta : Tensor()};
}

}  // namespace at::native::npu
