// Gradients of npu operators with dropout.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>

namespace at::native::npu {
namespace {

struct Dropout : Function<Dropout> {
  static variable_list forward(AutogradContext* ctx, const Tensor& self, double p) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, mask] = NPU_CUSTOM_OP(npu_dropout, "_npu_dropout", "").call(self, p);
    ctx->save_for_backward({mask});
    ctx->saved_data["p"] = p;
    ctx->mark_non_differentiable({mask});
    return {y, mask};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Tensor dx = NPU_CUSTOM_OP(npu_dropout_backward, "npu_dropout_backward", "")
                          .call(grads[0], ctx->get_saved_variables()[0], ctx->saved_data["p"].toDouble());
    return {dx, {}};
  }
};

struct DropoutDoMask : Function<DropoutDoMask> {
  static variable_list forward(AutogradContext* ctx, const Tensor& self, const Tensor& mask, double p) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, used] = NPU_CUSTOM_OP(npu_dropout_do_mask, "npu_dropout_do_mask", "").call(self, mask, p);
    ctx->save_for_backward({used});
    ctx->saved_data["p"] = p;
    ctx->mark_non_differentiable({used});
    return {y, used};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Tensor dx = NPU_CUSTOM_OP(npu_dropout_backward, "npu_dropout_backward", "")
                          .call(grads[0], ctx->get_saved_variables()[0], ctx->saved_data["p"].toDouble());
    return {dx, {}, {}};
  }
};

struct DropoutV2 : Function<DropoutV2> {
  static variable_list forward(AutogradContext* ctx, const Tensor& self, Tensor seed, double p) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, mask, next] = NPU_CUSTOM_OP(npu_dropoutV2, "npu_dropoutV2", "").call(self, seed, p);
    ctx->save_for_backward({mask});
    ctx->saved_data["p"] = p;
    ctx->mark_non_differentiable({mask});
    return {y, mask};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Tensor dx = NPU_CUSTOM_OP(npu_dropoutV2_backward, "npu_dropoutV2_backward", "")
                          .call(grads[0], ctx->get_saved_variables()[0], ctx->saved_data["p"].toDouble());
    return {dx, {}, {}};
  }
};

struct DropoutAddSoftmax : Function<DropoutAddSoftmax> {
  static variable_list forward(AutogradContext* ctx, const Tensor& self, const Tensor& x1, const Scalar& alpha,
                               double prob, int64_t dim) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [mask, soft, y] = NPU_CUSTOM_OP(npu_dropout_with_add_softmax, "npu_dropout_with_add_softmax", "")
                                     .call(self, x1, alpha, prob, dim);
    ctx->save_for_backward({mask, soft});
    ctx->saved_data["alpha"] = alpha;
    ctx->saved_data["prob"] = prob;
    ctx->saved_data["dim"] = dim;
    ctx->mark_non_differentiable({mask, soft});
    return {mask, soft, y};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    auto& d = ctx->saved_data;
    const auto [dself, dx1] =
        NPU_CUSTOM_OP(npu_dropout_with_add_softmax_backward, "npu_dropout_with_add_softmax_backward", "")
            .call(grads[2], s[0], s[1], d["alpha"].toScalar(), d["prob"].toDouble(), d["dim"].toInt());
    return {dself, dx1, {}, {}, {}};
  }
};

}  // namespace

std::tuple<Tensor, Tensor> npu_dropout_autograd(const Tensor& self, double p) {
  return as_tuple<2>(Dropout::apply(self, p));
}

std::tuple<Tensor, Tensor> npu_dropout_do_mask_autograd(const Tensor& self, const Tensor& mask, double p) {
  return as_tuple<2>(DropoutDoMask::apply(self, mask, p));
}

std::tuple<Tensor, Tensor, Tensor> npu_dropoutV2_autograd(const Tensor& self, Tensor& seed, double p) {
  const variable_list out = DropoutV2::apply(self, seed, p);
  return {out[0], out[1], seed};
}

std::tuple<Tensor, Tensor, Tensor> npu_dropout_with_add_softmax_autograd(const Tensor& self, const Tensor& x1,
                                                                         const Scalar& alpha, double prob,
                                                                         int64_t dim) {
  return as_tuple<3>(DropoutAddSoftmax::apply(self, x1, alpha, prob, dim));
}

}  // namespace at::native::npu
