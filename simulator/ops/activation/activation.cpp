// Activations and their gradients.

#include "ops/common.h"
#include "ops/tiny.h"

#include <ATen/CPUFunctions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

namespace acl_sim {
namespace {

using at::Tensor;

const DtypeSet kFloatAndComplex = kFloatTypes | dtype_bit(ACL_COMPLEX64) | dtype_bit(ACL_COMPLEX128);

#define ACTIVATION(TYPE, DTYPES, CALL)                         \
  SIM_OP(TYPE).inputs(1).dtypes(DTYPES).run([](OpContext& c) { \
    const Tensor x = c.in_any(0);                              \
    Tensor y = out_for(c, x);                                  \
    CALL;                                                      \
  })

#define GRADIENT(TYPE, DTYPES, CALL)                           \
  SIM_OP(TYPE).inputs(2).dtypes(DTYPES).run([](OpContext& c) { \
    const Tensor g = c.in_any(0), x = c.in_any(1);             \
    Tensor y = out_for(c, g, x);                               \
    CALL;                                                      \
  })

// Calls visit(first element, how many, the exponentials of x) for blocks that fit a cache. With w = exp(x) mish needs
// one exponential: tanh(log(1 + w)) = n / (n + 2), n = w * (w + 2).
template <class Visit>
void with_exponentials(const Tensor& x, const Visit& visit) {
  constexpr int64_t kBlock = 1 << 12;
  const float* in = x.const_data_ptr<float>();
  at::parallel_for(0, x.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    std::array<float, kBlock> w;
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = std::min(kBlock, end - at);
      for (int64_t i = 0; i < n; ++i) w[i] = std::min(in[at + i], 30.0F);  // from there on the result is x
      Tensor block = at::from_blob(w.data(), {n}, at::kFloat);
      at::cpu::exp_(block);
      visit(at, n, w.data());
    }
  });
}

bool in_one_piece(const Tensor& x, const Tensor& y) {
  return x.scalar_type() == at::kFloat && x.is_contiguous() && y.is_contiguous();
}

void mish(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  if (!in_one_piece(x, y)) {
    at::cpu::mish_out(y, x);
    return;
  }
  const float* in = x.const_data_ptr<float>();
  float* out = y.mutable_data_ptr<float>();
  with_exponentials(x, [&](int64_t at, int64_t count, const float* w) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float n = w[i] * (w[i] + 2);
      out[at + i] = in[at + i] * (n / (n + 2));
    }
  });
}

void mish_grad(OpContext& c) {
  const Tensor g = c.in_any(0), x = c.in_any(1);
  Tensor y = out_for(c, g, x);
  if (!in_one_piece(x, y) || !in_one_piece(g, y)) {
    y.copy_(at::mish_backward(g, x));
    return;
  }
  const float *in = x.const_data_ptr<float>(), *grad = g.const_data_ptr<float>();
  float* out = y.mutable_data_ptr<float>();
  with_exponentials(x, [&](int64_t at, int64_t count, const float* w) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float n = w[i] * (w[i] + 2), tanh = n / (n + 2), sigmoid = w[i] / (w[i] + 1);
      out[at + i] = grad[at + i] * (tanh + in[at + i] * sigmoid * (1 - tanh * tanh));
    }
  });
}

ACTIVATION(Relu, kRealTypes, at::cpu::clamp_min_out(y, x, 0)).tiny(tiny::unary<tiny::Relu>);
ACTIVATION(Swish, kFloatAndComplex, at::cpu::silu_out(y, x));
SIM_OP(Mish).inputs(1).dtypes(kFloatTypes).run(mish);
ACTIVATION(HardSigmoid, kFloatTypes, at::cpu::hardsigmoid_out(y, x));
ACTIVATION(HardSwish, kFloatTypes, at::cpu::hardswish_out(y, x));

GRADIENT(ReluGrad, kRealTypes, at::cpu::threshold_backward_out(y, g, x, 0)).tiny(tiny::binary<tiny::ReluGrad>);
GRADIENT(SiluGrad, kFloatAndComplex, at::cpu::silu_backward_out(y, g, x));
GRADIENT(HardSigmoidGrad, kFloatTypes, at::cpu::hardsigmoid_backward_out(y, g, x));
// Both take the activation's result first, then the gradient.
GRADIENT(SigmoidGrad, kFloatAndComplex, at::cpu::sigmoid_backward_out(y, x, g));
GRADIENT(TanhGrad, kFloatAndComplex, at::cpu::tanh_backward_out(y, x, g));
// x, weight; the weight has x's rank
SIM_OP(PRelu).inputs(2).dtypes(kFloatTypes).run([](OpContext& c) {
  const Tensor x = c.in_any(0);
  c.set_out(0, at::_prelu_kernel(x, c.in_any(1)));
});
SIM_OP(HardSwishGrad).inputs(2).dtypes(kFloatTypes).run([](OpContext& c) {
  c.set_out(0, at::hardswish_backward(c.in_any(0), c.in_any(1)));
});
SIM_OP(MishGrad).inputs(2).dtypes(kFloatTypes).run(mish_grad);
SIM_OP(LogSigmoid).inputs(1).dtypes(kFloatTypes).run([](OpContext& c) { c.set_out(0, at::log_sigmoid(c.in_any(0))); });
// gradient, x
SIM_OP(LogSigmoidGrad).inputs(2).dtypes(kFloatTypes).run([](OpContext& c) {
  const Tensor x = c.in(1);
  c.set_out(0, at::log_sigmoid_backward(c.in(0), x, std::get<1>(at::log_sigmoid_forward(x))));
});

void gelu(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  at::cpu::gelu_out(y, x, c.attrs().text("approximate", "none"));
}
SIM_OP(GeluV2).inputs(1).dtypes(kFloatTypes).attrs({"approximate:str"}).run(gelu);

void gelu_grad(OpContext& c) {
  const Tensor g = c.in_any(0), x = c.in_any(1);
  Tensor y = out_for(c, g, x);
  at::cpu::gelu_backward_out(y, g, x, c.attrs().text("approximate", "none"));
}
SIM_OP(GeluGradV2).inputs(2).dtypes(kFloatTypes).attrs({"approximate:str"}).run(gelu_grad);

// x, threshold, value
void threshold(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  at::cpu::threshold_out(y, x, c.in_scalar(1), c.in_scalar(2));
}
SIM_OP(ThresholdV2).inputs(3).dtypes(kRealTypes).run(threshold);

void threshold_grad(OpContext& c) {
  const Tensor g = c.in_any(0), x = c.in_any(1);
  Tensor y = out_for(c, g, x);
  at::cpu::threshold_backward_out(y, g, x, number(c, "threshold", 2, 0));
}
SIM_OP(ThresholdGradV2D)
    .inputs(2)
    .dtypes(kRealTypes)
    .attrs({"threshold:float"})
    .require({"threshold"})
    .run(threshold_grad);
SIM_OP(ThresholdGradV2DWide).inputs(3).dtypes(kRealTypes).run(threshold_grad);

const std::vector<std::string> kElu = {"alpha:float", "scale:float", "input_scale:float"};
void elu(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  at::cpu::elu_out(y, x, number(c, "alpha", 1, 1), number(c, "scale", 2, 1), number(c, "input_scale", 3, 1));
}
SIM_OP(Elu).inputs(1).dtypes(kFloatTypes).attrs(kElu).run(elu);
SIM_OP(EluWide).inputs(4).dtypes(kFloatTypes).run(elu);

void elu_grad(OpContext& c) {
  const Tensor g = c.in_any(0), x = c.in_any(1);
  Tensor y = out_for(c, g, x);
  at::cpu::elu_backward_out(y, g, number(c, "alpha", 2, 1), number(c, "scale", 3, 1), number(c, "input_scale", 4, 1),
                            c.attrs().boolean("is_result", false), x);
}
SIM_OP(EluGradV2)
    .inputs(2)
    .dtypes(kFloatTypes)
    .attrs({"alpha:float", "scale:float", "input_scale:float", "is_result:bool"})
    .run(elu_grad);
SIM_OP(EluGradV2Wide).inputs(5).dtypes(kFloatTypes).attrs({"is_result:bool"}).run(elu_grad);

void leaky_relu(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  at::cpu::leaky_relu_out(y, x, number(c, "negative_slope", 1, 0));
}
SIM_OP(LeakyRelu).inputs(1).dtypes(kFloatTypes).attrs({"negative_slope:float"}).run(leaky_relu);
SIM_OP(LeakyReluWide).inputs(2).dtypes(kFloatTypes).run(leaky_relu);

// The features may be the activation's result: a slope that is not negative keeps the sign.
void leaky_relu_grad(OpContext& c) {
  const Tensor g = c.in_any(0), x = c.in_any(1);
  Tensor y = out_for(c, g, x);
  at::cpu::leaky_relu_backward_out(y, g, x, number(c, "negative_slope", 2, 0), false);
}
SIM_OP(LeakyReluGrad).inputs(2).dtypes(kFloatTypes).attrs({"negative_slope:float"}).run(leaky_relu_grad);
SIM_OP(LeakyReluGradWide).inputs(3).dtypes(kFloatTypes).run(leaky_relu_grad);

const std::vector<std::string> kSoftplus = {"beta:float", "threshold:float"};

void softplus(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  at::cpu::softplus_out(y, x, number(c, "beta", 1, 1), number(c, "threshold", 2, 20));
}
SIM_OP(SoftplusV2).inputs(1).dtypes(kFloatTypes).attrs(kSoftplus).run(softplus);
SIM_OP(SoftplusV2Wide).inputs(3).dtypes(kFloatTypes).run(softplus);

void softplus_grad(OpContext& c) {
  const Tensor g = c.in_any(0), x = c.in_any(1);
  Tensor y = out_for(c, g, x);
  at::cpu::softplus_backward_out(y, g, x, number(c, "beta", 2, 1), number(c, "threshold", 3, 20));
}
SIM_OP(SoftplusV2Grad).inputs(2).dtypes(kFloatTypes).attrs(kSoftplus).run(softplus_grad);
SIM_OP(SoftplusV2GradWide).inputs(4).dtypes(kFloatTypes).run(softplus_grad);

void hard_shrink(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  at::cpu::hardshrink_out(y, x, number(c, "lambd", 1, 0.5));
}
SIM_OP(HardShrink).inputs(1).dtypes(kFloatTypes).attrs({"lambd:float"}).run(hard_shrink);
SIM_OP(HardShrinkWide).inputs(2).dtypes(kFloatTypes).run(hard_shrink);

void hard_shrink_grad(OpContext& c) {
  const Tensor g = c.in_any(0), x = c.in_any(1);
  Tensor y = out_for(c, g, x);
  at::cpu::hardshrink_backward_out(y, g, x, number(c, "lambd", 2, 0.5));
}
SIM_OP(HardShrinkGrad).inputs(2).dtypes(kFloatTypes).attrs({"lambd:float"}).run(hard_shrink_grad);
SIM_OP(HardShrinkGradWide).inputs(3).dtypes(kFloatTypes).run(hard_shrink_grad);

void soft_shrink(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  at::cpu::softshrink_out(y, x, number(c, "lambd", 1, 0.5));
}
SIM_OP(SoftShrink).inputs(1).dtypes(kFloatTypes).attrs({"lambd:float"}).run(soft_shrink);
SIM_OP(SoftShrinkWide).inputs(2).dtypes(kFloatTypes).run(soft_shrink);

void soft_shrink_grad(OpContext& c) {
  const Tensor g = c.in_any(0), x = c.in_any(1);
  Tensor y = out_for(c, g, x);
  at::cpu::softshrink_backward_out(y, g, x, number(c, "lambd", 2, 0.5));
}
SIM_OP(SoftShrinkGrad).inputs(2).dtypes(kFloatTypes).attrs({"lambd:float"}).run(soft_shrink_grad);
SIM_OP(SoftShrinkGradWide).inputs(3).dtypes(kFloatTypes).run(soft_shrink_grad);

// Takes x, or the activation's result, first.
void hardtanh_grad(OpContext& c) {
  const Tensor x = c.in_any(0), g = c.in_any(1);
  Tensor y = out_for(c, g, x);
  at::cpu::hardtanh_backward_out(y, g, x, number(c, "min_val", 2, -1), number(c, "max_val", 3, 1));
}
SIM_OP(HardtanhGrad).inputs(2).dtypes(kRealTypes).attrs({"min_val:float", "max_val:float"}).run(hardtanh_grad);
SIM_OP(HardtanhGradWide).inputs(4).dtypes(kRealTypes).run(hardtanh_grad);

// x, gradient; an eps below 0 is none
void logit_grad(OpContext& c) {
  const Tensor x = c.in_any(0), g = c.in_any(1);
  Tensor y = out_for(c, g, x);
  const double eps = number(c, "eps", 2, -1);
  at::cpu::logit_backward_out(y, g, x, eps < 0 ? std::nullopt : std::optional<double>(eps));
}
SIM_OP(LogitGrad).inputs(2).dtypes(kFloatTypes).attrs({"eps:float"}).run(logit_grad);
SIM_OP(LogitGradWide).inputs(3).dtypes(kFloatTypes).run(logit_grad);

}  // namespace
}  // namespace acl_sim
