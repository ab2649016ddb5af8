// Batch and layer normalisation with their gradients, computed in fp32 (fp64 for fp64). Batch norm has kernels of its
// own (norm_layout.h); layer norm, and fp64, use libtorch's.
//
// Batch norm: BatchNormV3 trains (and updates the running statistics), BNInfer evaluates; their gradients are
// BatchNormGradV3, whose is_training attribute says which of the two it belongs to.

#include <cmath>
#include <numeric>
#include "exec/definition/aten.h"

#include "ops/nn_util.h"
#include "ops/normalization/norm_layout.h"

namespace acl_sim {

std::vector<float> channel_values(OpContext& c, size_t i, int64_t channels, float otherwise) {
  if (!c.has_input(i)) {
    return std::vector<float>(channels, otherwise);
  }
  const at::Tensor t = c.in(i).to(at::kFloat).contiguous();
  if (t.numel() != channels) {
    refuse("input " + std::to_string(i) + " has " + std::to_string(t.numel()) + " elements for " +
           std::to_string(channels) + " channels");
  }
  const float* p = t.const_data_ptr<float>();
  return {p, p + channels};
}

namespace {

at::Tensor wide_in(OpContext& c, size_t i) { return widen(optional_in(c, i)); }

// inputs x, weight, bias, running_mean, running_var; outputs y, running_mean, running_var, save_mean, save_rstd
void batch_norm_train(OpContext& c) {
  const double eps = c.attrs().real("epsilon", 1e-5), momentum = c.attrs().real("momentum", 0.1);
  const at::Tensor stored = c.in_any(0);
  if (!normalizes_here(stored)) {
    const at::Tensor x = widen(stored), y = c.out_as(0, stored);
    // Copies: the kernel updates them in place.
    const at::Tensor running_mean = widen(c.in(3)).clone(), running_var = widen(c.in(4)).clone();
    auto [out, mean, rstd] = at::native_batch_norm(x, some(wide_in(c, 1)), some(wide_in(c, 2)), running_mean,
                                                   running_var, true, momentum, eps);
    y.copy_(out);
    c.out(1).copy_(running_mean);
    c.out(2).copy_(running_var);
    c.out(3).copy_(mean);
    c.out(4).copy_(rstd);
    return;
  }
  const NormLayout layout(stored);
  const at::Tensor y = c.out_as(0, stored);
  const int64_t channels = stored.size(1), rows = layout.row_count();
  std::vector<double> mean(channels), m2(channels), rstd(channels);
  with_element_type(stored,
                    [&]<class T>(T*) { layout.statistics(stored.const_data_ptr<T>(), mean.data(), m2.data()); });
  const std::vector<float> weight = channel_values(c, 1, channels, 1), bias = channel_values(c, 2, channels, 0);
  std::vector<float> center(channels), scale(channels), shift(channels);
  const at::Tensor old_mean = c.in(3).to(at::kDouble), old_var = c.in(4).to(at::kDouble);
  std::vector<double> new_mean(channels), new_var(channels);
  const double n = static_cast<double>(rows);
  for (int64_t j = 0; j < channels; ++j) {
    rstd[j] = 1.0 / std::sqrt(m2[j] / n + eps);
    center[j] = static_cast<float>(mean[j]);
    scale[j] = static_cast<float>(weight[j] * rstd[j]);
    shift[j] = static_cast<float>(bias[j] + (center[j] - mean[j]) * scale[j]);
    const double unbiased = m2[j] / (n - 1);
    new_mean[j] = old_mean.const_data_ptr<double>()[j] * (1 - momentum) + momentum * mean[j];
    new_var[j] = old_var.const_data_ptr<double>()[j] * (1 - momentum) + momentum * unbiased;
  }
  with_element_type(stored, [&]<class T>(T*) {
    layout.normalize(stored.const_data_ptr<T>(), center.data(), scale.data(), shift.data(), y.mutable_data_ptr<T>());
  });
  write_values(c.out(1), new_mean);
  write_values(c.out(2), new_var);
  write_values(c.out(3), mean);
  write_values(c.out(4), rstd);
}

// inputs x, scale, offset, mean, variance
void batch_norm_infer(OpContext& c) {
  const double eps = c.attrs().real("epsilon", 1e-5);
  const at::Tensor stored = c.in_any(0);
  if (!normalizes_here(stored)) {
    const at::Tensor x = widen(stored), y = c.out_as(0, stored);
    y.copy_(std::get<0>(at::native_batch_norm(x, some(wide_in(c, 1)), some(wide_in(c, 2)), wide_in(c, 3), wide_in(c, 4),
                                              false, 0.0, eps)));
    return;
  }
  const NormLayout layout(stored);
  const at::Tensor y = c.out_as(0, stored);
  const int64_t channels = stored.size(1);
  std::vector<float> scale = channel_values(c, 1, channels, 1), bias = channel_values(c, 2, channels, 0);
  const std::vector<float> mean = channel_values(c, 3, channels, 0), var = channel_values(c, 4, channels, 1);
  for (int64_t j = 0; j < channels; ++j) {
    scale[j] = static_cast<float>(scale[j] / std::sqrt(var[j] + eps));
  }
  with_element_type(stored, [&]<class T>(T*) {
    layout.normalize(stored.const_data_ptr<T>(), mean.data(), scale.data(), bias.data(), y.mutable_data_ptr<T>());
  });
}

// inputs dy, x, weight, running_mean, running_var, save_mean, save_rstd; outputs dx, dweight, dbias
void batch_norm_grad(OpContext& c) {
  const double eps = c.attrs().real("epsilon", 1e-5);
  const bool training = c.attrs().boolean("is_training", true);
  const at::Tensor stored = c.in_any(1);
  if (!normalizes_here(stored) || c.in_any(0).scalar_type() != stored.scalar_type()) {
    auto [dx, dw, db] = at::native_batch_norm_backward(wide_in(c, 0), wide_in(c, 1), some(wide_in(c, 2)),
                                                       some(wide_in(c, 3)), some(wide_in(c, 4)), some(wide_in(c, 5)),
                                                       some(wide_in(c, 6)), training, eps, {true, true, true});
    c.out(0).copy_(dx);
    c.out(1).copy_(dw.defined() ? dw : at::zeros({stored.size(1)}));
    c.out(2).copy_(db.defined() ? db : at::zeros({stored.size(1)}));
    return;
  }
  const NormLayout layout(stored);
  const at::Tensor dy = normalized_in(c, 0, stored), dx = c.out_as(0, stored);
  const int64_t channels = stored.size(1);
  const double rows = static_cast<double>(layout.row_count());
  std::vector<float> mean = channel_values(c, training ? 5 : 3, channels, 0);
  std::vector<float> rstd = channel_values(c, training ? 6 : 4, channels, 1);
  if (!training) {
    for (float& v : rstd) {
      v = static_cast<float>(1.0 / std::sqrt(v + eps));
    }
  }
  std::vector<double> sum_dy(channels), sum_dy_x(channels), dweight(channels);
  with_element_type(stored, [&]<class T>(T*) {
    layout.gradient_sums(dy.const_data_ptr<T>(), stored.const_data_ptr<T>(), mean.data(), sum_dy.data(),
                         sum_dy_x.data());
  });
  std::vector<float> scale = channel_values(c, 2, channels, 1), by_x(channels), shift(channels);
  for (int64_t j = 0; j < channels; ++j) {
    const double r = rstd[j], by_dy = scale[j] * r;
    dweight[j] = sum_dy_x[j] * r;
    shift[j] = static_cast<float>(-by_dy * sum_dy[j] / rows);
    by_x[j] = static_cast<float>(-by_dy * sum_dy_x[j] * r * r / rows);
    scale[j] = static_cast<float>(by_dy);
  }
  with_element_type(stored, [&]<class T>(T*) {
    layout.gradient(dy.const_data_ptr<T>(), training ? stored.const_data_ptr<T>() : nullptr, mean.data(), scale.data(),
                    by_x.data(), shift.data(), dx.mutable_data_ptr<T>());
  });
  write_values(c.out(1), dweight);
  write_values(c.out(2), sum_dy);
}

// inputs x, normalized_shape, gamma, beta; outputs y, mean, rstd. libtorch reads fp16 as it is and computes in fp32,
// with fp32 statistics, if the scale is fp32.
void layer_norm(OpContext& c) {
  const at::Tensor x = c.in(0);
  const std::vector<int64_t> shape = c.in_values(1);
  at::Tensor gamma = wide_in(c, 2);
  if (!gamma.defined() && at::isReducedFloatingType(x.scalar_type())) gamma = at::ones(shape, at::kFloat);
  const at::Tensor beta = wide_in(c, 3);
  c.place_next_allocation(0);
  auto [out, mean, rstd] = at::native_layer_norm(x, shape, some(gamma), some(beta), c.attrs().real("epsilon", 1e-5));
  c.set_out(0, out);
  c.out(1).copy_(mean);
  c.out(2).copy_(rstd);
}

// inputs dy, x, rstd, mean, gamma; outputs pd_x, pd_gamma, pd_beta (sizes of gamma)
void layer_norm_grad(OpContext& c) {
  const at::Tensor dy = wide_in(c, 0), x = wide_in(c, 1), mean = wide_in(c, 3), rstd = wide_in(c, 2), dgamma = c.out(1);
  const at::Tensor gamma = wide_in(c, 4);
  // The first that it allocates is dx. Of halves, what is computed is wider than the output.
  if (!is_low_precision(c.in_any(1))) c.place_next_allocation(0);
  auto [dx, dg, db] = at::native_layer_norm_backward(dy, x, dgamma.sizes(), mean, rstd, some(gamma), some(gamma),
                                                     {true, gamma.defined(), gamma.defined()});
  c.set_out(0, dx);
  if (gamma.defined()) {
    dgamma.copy_(dg);
    c.out(2).copy_(db);
  }
}

SIM_OP(BatchNormV3)
    .inputs(5)
    .outputs(5)
    .dtypes(kFloatTypes)
    .attrs({"epsilon:float", "momentum:float", "is_training:bool"})
    .run(batch_norm_train);
SIM_OP(BNInfer).inputs(5).dtypes(kFloatTypes).attrs({"epsilon:float"}).require({"epsilon"}).run(batch_norm_infer);
SIM_OP(BatchNormGradV3)
    .inputs(7)
    .outputs(3)
    .dtypes(kFloatTypes)
    .attrs({"epsilon:float", "is_training:bool"})
    .run(batch_norm_grad);
SIM_OP(LayerNormV4)
    .inputs(2, 4)
    .outputs(3)
    .dtypes({kFloatTypes, kIntTypes, kFloatTypes, kFloatTypes})
    .attrs({"epsilon:float"})
    .run(layer_norm);
SIM_OP(LayerNormGradV3).inputs(5).outputs(3).dtypes(kFloatTypes).run(layer_norm_grad);
SIM_ATEN(WeightNorm, "_weight_norm_interface");
SIM_ATEN(WeightNormGrad, "_weight_norm_interface_backward");

}  // namespace
}  // namespace acl_sim
