#pragma once
// What operators are computed of where the device lacks the IR operator that is all of one: see Note [What a card has]
// in frame/command/Missing.h. The expressions of `composed` in the operator table call these. Arguments are those of
// the aten overload; `compute` is the dtype in which the operator computes, and floating-point results may be wider
// than the result that is wanted.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <string_view>
#include <tuple>

namespace at::native::npu::composed {

using OptionalScale = std::optional<double>;

// ---- ComposedMath.cpp
Tensor exp2(const Tensor& self, ScalarType compute);
Tensor digamma(const Tensor& self, ScalarType compute);
Tensor polygamma(int64_t n, const Tensor& self, ScalarType compute);
Tensor i0(const Tensor& self, ScalarType compute);
Tensor i1(const Tensor& self, ScalarType compute);
Tensor entr(const Tensor& self, ScalarType compute);
Tensor log_ndtr(const Tensor& self, ScalarType compute);
Tensor erfcx(const Tensor& self, ScalarType compute);
Tensor sgn(const Tensor& self, ScalarType compute);
Tensor frac(const Tensor& self, ScalarType compute);
Tensor nan_to_num(const Tensor& self, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf, ScalarType compute);
Tensor logit(const Tensor& self, std::optional<double> eps, ScalarType compute);
Tensor fmax(const Tensor& self, const Tensor& other, ScalarType compute);
Tensor fmin(const Tensor& self, const Tensor& other, ScalarType compute);
Tensor hypot(const Tensor& self, const Tensor& other, ScalarType compute);
Tensor copysign(const Tensor& self, const Tensor& other, ScalarType compute);
Tensor logaddexp2(const Tensor& self, const Tensor& other, ScalarType compute);
Tensor lcm(const Tensor& self, const Tensor& other, ScalarType compute);
Tensor logical_xor(const Tensor& self, const Tensor& other);
std::tuple<Tensor, Tensor> frexp(const Tensor& self);
Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base, ScalarType compute, Device device);
enum class Chebyshev { T, U, V, W };
Tensor chebyshev(Chebyshev kind, const Tensor& x, const Tensor& n, bool shifted, ScalarType compute);

// ---- ComposedPolynomials.cpp
enum class Polynomial { HermiteH, HermiteHe, LaguerreL, LegendreP };
Tensor polynomial(Polynomial kind, const Tensor& self, const Tensor& n, ScalarType compute);

// ---- ComposedBessel.cpp
Tensor bessel_j(int64_t order, const Tensor& self, ScalarType compute);
Tensor bessel_y(int64_t order, const Tensor& self, ScalarType compute);
Tensor bessel_k(int64_t order, bool scaled, const Tensor& self, ScalarType compute);
Tensor spherical_bessel_j0(const Tensor& self, ScalarType compute);

// ---- ComposedActivation.cpp: numbers that no attribute of fp32 holds
Tensor elu(const Tensor& self, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale);
Tensor elu_backward(const Tensor& grad, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale,
                    bool is_result, const Tensor& self_or_result);
Tensor leaky_relu(const Tensor& self, const Scalar& slope);
Tensor leaky_relu_backward(const Tensor& grad, const Tensor& self, const Scalar& slope);
Tensor softplus(const Tensor& self, const Scalar& beta, const Scalar& threshold);
Tensor softplus_backward(const Tensor& grad, const Tensor& self, const Scalar& beta, const Scalar& threshold);
Tensor hardshrink(const Tensor& self, const Scalar& lambd);
Tensor softshrink(const Tensor& self, const Scalar& lambd);
Tensor shrink_backward(const Tensor& grad, const Tensor& self, const Scalar& lambd);
Tensor hardtanh_backward(const Tensor& grad, const Tensor& self, const Scalar& min, const Scalar& max);
Tensor threshold_backward(const Tensor& grad, const Tensor& self, const Scalar& threshold);
Tensor logit_backward(const Tensor& grad, const Tensor& self, std::optional<double> eps);

// ---- ComposedIndex.cpp
Tensor vector_norm(const Tensor& self, const Scalar& ord, at::OptionalIntArrayRef dim, bool keepdim, ScalarType dtype);
Tensor renorm(const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm);
Tensor index_copy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source);
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert);
Tensor take(const Tensor& self, const Tensor& index);
Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate);
Tensor unfold_backward(const Tensor& grad_in, IntArrayRef input_sizes, int64_t dim, int64_t size, int64_t step);
Tensor median(const Tensor& self, bool ignore_nan);
Tensor histc(const Tensor& self, int64_t bins, double min, double max);
Tensor logcumsumexp(const Tensor& self, int64_t dim);

// ---- ComposedSort.cpp: values and where they were along a dimension
std::tuple<Tensor, Tensor> kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim);
std::tuple<Tensor, Tensor> median_along(const Tensor& self, int64_t dim, bool keepdim, bool ignore_nan);
std::tuple<Tensor, Tensor> mode(const Tensor& self, int64_t dim, bool keepdim);

// ---- ComposedScatter.cpp
Tensor scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                      bool include_self);
Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                    bool include_self);

// ---- ComposedImage.cpp
enum class Filter { Nearest, NearestExact, Linear, Cubic, Lanczos };
struct Resize {
  Filter filter;
  bool align_corners = false;
  bool antialias = false;
};
// `ir`: what is asked for, for bytes that only the CPU sums as upstream does.
Tensor resize(const Resize& how, const Tensor& self, IntArrayRef output_size, at::ArrayRef<OptionalScale> scales,
              const char* ir);
Tensor resize_backward(const Resize& how, const Tensor& grad, IntArrayRef input_size,
                       at::ArrayRef<OptionalScale> scales);
// Gradients of maximum pooling with indices within the last `spatial` dimensions, and its inverse.
Tensor pool_backward(const Tensor& grad, const Tensor& self, const Tensor& indices, int64_t spatial);
Tensor unpool(const Tensor& self, const Tensor& indices, IntArrayRef output_size);

// ---- ComposedLoss.cpp
Tensor smooth_l1_loss(const Tensor& self, const Tensor& target, int64_t reduction, double beta);
Tensor smooth_l1_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t reduction,
                               double beta);
Tensor huber_loss(const Tensor& self, const Tensor& target, int64_t reduction, double delta);
Tensor huber_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t reduction,
                           double delta);
Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const Scalar& p, const Scalar& margin,
                         const std::optional<Tensor>& weight, int64_t reduction);
Tensor multi_margin_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, const Scalar& p,
                                  const Scalar& margin, const std::optional<Tensor>& weight, int64_t reduction);
Tensor multilabel_margin_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                                       int64_t reduction, const Tensor& is_target);

// ---- ComposedAttention.cpp
// The result and the logarithms of the sums of the exponentials of its scores.
std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const std::optional<Tensor>& attn_bias, bool is_causal, double scale);
std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& grad_out, const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& attn_bias, const Tensor& out,
                                                      const Tensor& logsumexp, bool is_causal, double scale);

// ---- ComposedOptimizer.cpp: lists of parameters and what belongs to them, changed in place
void sgd(TensorList params, TensorList grads, TensorList momenta, double weight_decay, double momentum,
         const Tensor& lr, double dampening, bool nesterov, bool maximize, bool is_first_step,
         const std::optional<Tensor>& grad_scale, const std::optional<Tensor>& found_inf);
void adam(bool decoupled, TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
          TensorList max_exp_avg_sqs, TensorList steps, const Tensor& lr, double beta1, double beta2,
          double weight_decay, double eps, bool maximize, const std::optional<Tensor>& grad_scale,
          const std::optional<Tensor>& found_inf);

}  // namespace at::native::npu::composed
