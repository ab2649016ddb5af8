// The pieces of batch normalisation over several devices: statistics of one device, their combination, and the two
// halves of the gradient. All but the element-wise halves are tensors of one value per channel.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {
namespace {

ScalarType accumulated(ScalarType type) { return type == kHalf || type == kBFloat16 ? kFloat : type; }

// A value per channel as a factor of the input.
Tensor per_channel(const Tensor& values, const Tensor& input) {
  DimVector shape(input.dim(), 1);
  shape[1] = input.size(1);
  return values.reshape(shape);
}

DimVector other_dims(const Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, "batch norm over devices expects at least two dimensions, (N, C, ...), but found ",
              input.sizes());
  DimVector dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

struct Moments {
  Tensor mean, variance;  // the biased one
};

Moments moments(const Tensor& input) {
  const Tensor wide = input.to(accumulated(input.scalar_type()));
  auto [variance, mean] = at::var_mean(wide, OptionalIntArrayRef(other_dims(input)), /*correction=*/0);
  return {mean, variance};
}

bool given(const std::optional<Tensor>& tensor) { return tensor.has_value() && tensor->defined(); }

void follow(const std::optional<Tensor>& running, const Tensor& value, double momentum) {
  if (given(running)) running->mul_(1 - momentum).add_(value.to(running->scalar_type()), momentum);
}

}  // namespace

std::tuple<Tensor, Tensor> batch_norm_stats(const Tensor& input, double eps) {
  DeviceOf guard(input);
  const Moments m = moments(input);
  return {m.mean, m.variance.add(eps).rsqrt()};
}

Tensor batch_norm_elemt(const Tensor& input, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                        const Tensor& mean, const Tensor& invstd, double /*eps*/) {
  DeviceOf guard(input);
  Tensor result = (input - per_channel(mean, input)) * per_channel(invstd, input);
  if (given(weight)) result = result * per_channel(*weight, input);
  if (given(bias)) result = result + per_channel(*bias, input);
  return result.to(input.scalar_type());
}

Tensor& batch_norm_elemt_out(const Tensor& input, const std::optional<Tensor>& weight,
                             const std::optional<Tensor>& bias, const Tensor& mean, const Tensor& invstd, double eps,
                             Tensor& out) {
  return give(npu::batch_norm_elemt(input, weight, bias, mean, invstd, eps), out);
}

std::tuple<Tensor, Tensor> batch_norm_update_stats(const Tensor& input, const std::optional<Tensor>& running_mean,
                                                   const std::optional<Tensor>& running_var, double momentum) {
  DeviceOf guard(input);
  const Moments m = moments(input);
  const double n = static_cast<double>(input.numel() / input.size(1));
  follow(running_mean, m.mean, momentum);
  follow(running_var, m.variance * (n / (n - 1)), momentum);
  return {m.mean, m.variance};
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats_with_counts(const Tensor& input, const Tensor& mean,
                                                               const Tensor& invstd,
                                                               const std::optional<Tensor>& running_mean,
                                                               const std::optional<Tensor>& running_var,
                                                               double momentum, double eps, const Tensor& counts) {
  DeviceOf guard(input);
  TORCH_CHECK(mean.dim() == 2 && mean.sizes() == invstd.sizes() && counts.numel() == mean.size(0),
              "batch_norm_gather_stats_with_counts: expected mean and invstd of shape (devices, channels) and a count ",
              "per device, but found ", mean.sizes(), ", ", invstd.sizes(), " and ", counts.sizes());
  const Tensor weights = counts.to(mean.scalar_type()).reshape({-1, 1});
  const Tensor total = weights.sum();
  const Tensor all = (mean * weights).sum(0) / total;
  const Tensor squares = ((invstd.square().reciprocal() - eps + (mean - all).square()) * weights).sum(0);
  follow(running_mean, all, momentum);
  follow(running_var, squares / (total - 1), momentum);
  return {all, (squares / total + eps).rsqrt()};
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats(const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                                   const std::optional<Tensor>& running_mean,
                                                   const std::optional<Tensor>& running_var, double momentum,
                                                   double eps, int64_t count) {
  const Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return npu::batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps,
                                                  counts);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_backward_reduce(const Tensor& grad_out, const Tensor& input,
                                                                      const Tensor& mean, const Tensor& invstd,
                                                                      const std::optional<Tensor>& weight, bool input_g,
                                                                      bool weight_g, bool bias_g) {
  DeviceOf guard(input);
  const ScalarType wide = accumulated(input.scalar_type());
  const DimVector dims = other_dims(input);
  const Tensor dy = grad_out.to(wide);
  const Tensor sum_dy = dy.sum(dims);
  const Tensor sum_dy_xmu = (dy * (input.to(wide) - per_channel(mean, input))).sum(dims);
  const ScalarType dtype = given(weight) ? weight->scalar_type() : input.scalar_type();
  return {input_g ? sum_dy : Tensor(), input_g ? sum_dy_xmu : Tensor(),
          weight_g ? (sum_dy_xmu * invstd).to(dtype) : Tensor(), bias_g ? sum_dy.to(dtype) : Tensor()};
}

Tensor batch_norm_backward_elemt(const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                 const std::optional<Tensor>& weight, const Tensor& sum_dy, const Tensor& sum_dy_xmu,
                                 const Tensor& count) {
  DeviceOf guard(input);
  const Tensor total = count.sum().to(mean.scalar_type());
  const Tensor slope = invstd.square() * sum_dy_xmu / total;
  const Tensor scale = given(weight) ? invstd * weight->to(invstd.scalar_type()) : invstd;
  const Tensor centred = (input - per_channel(mean, input)) * per_channel(slope, input);
  return ((grad_out - per_channel(sum_dy / total, input) - centred) * per_channel(scale, input))
      .to(input.scalar_type());
}

// ---- Forms of the ordinary batch norm that carry a reserve, and out= forms

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_with_update(const Tensor& input,
                                                                  const std::optional<Tensor>& weight,
                                                                  const std::optional<Tensor>& bias,
                                                                  Tensor& running_mean, Tensor& running_var,
                                                                  double momentum, double eps) {
  auto [output, mean, invstd] =
      at::native_batch_norm(input, weight, bias, running_mean, running_var, /*training=*/true, momentum, eps);
  return {output, mean, invstd, at::empty({0}, input.options().dtype(kByte))};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_backward_reserve(
    const Tensor& grad_out, const Tensor& input, const Tensor& weight, const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var, const std::optional<Tensor>& save_mean,
    const std::optional<Tensor>& save_var, bool update, double eps, std::array<bool, 3> output_mask,
    const Tensor& /*reserve*/) {
  return at::native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_var, update,
                                        eps, output_mask);
}

std::tuple<Tensor&, Tensor&, Tensor&> batch_norm_legit_out(const Tensor& input, const std::optional<Tensor>& weight,
                                                           const std::optional<Tensor>& bias, Tensor& running_mean,
                                                           Tensor& running_var, bool training, double momentum,
                                                           double eps, Tensor& out, Tensor& save_mean,
                                                           Tensor& save_invstd) {
  return at::native_batch_norm_out(out, save_mean, save_invstd, input, weight, bias, running_mean, running_var,
                                   training, momentum, eps);
}

std::tuple<Tensor&, Tensor&, Tensor&> batch_norm_legit_no_stats_out(const Tensor& input,
                                                                    const std::optional<Tensor>& weight,
                                                                    const std::optional<Tensor>& bias, bool training,
                                                                    double momentum, double eps, Tensor& out,
                                                                    Tensor& save_mean, Tensor& save_invstd) {
  return at::native_batch_norm_out(out, save_mean, save_invstd, input, weight, bias, {}, {}, training, momentum, eps);
}

}  // namespace at::native::npu
