// Nested tensors of strided layout on npu. (Those with layout=torch.jagged are made in Python of plain tensors.)
//
// Note [Nested tensors]
// Such a tensor is a flat buffer, and the sizes, strides and offsets of its parts, which lie on the CPU. Upstream's
// kernels for nested CPU tensors work on the buffer with operators and on the sizes as numbers, nearly all of them, so
// the same kernel serves a buffer on npu: kDeviceNeutral lists those for which a test compares the two. A kernel that
// reads the buffer itself would end the process, so all others run on the CPU through copies, as any operator without
// an npu kernel does.

#include <ATen/native/npu/frame/registration/Fallback.h>

#include <ATen/NestedTensorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_nested_from_padded_and_nested_example.h>
#include <ATen/ops/_transformer_encoder_layer_fwd.h>
#include <ATen/ops/arange.h>
#include <torch/library.h>

namespace at::native::npu {

namespace {

// What a nested tensor is, and views of it.
constexpr const char* kViews[] = {"_nested_tensor_size",
                                  "_nested_tensor_storage_offsets",
                                  "_nested_tensor_strides",
                                  "alias",
                                  "chunk",
                                  "detach",
                                  "is_pinned",
                                  "is_same_size",
                                  "narrow",
                                  "select.int",
                                  "split_with_sizes",
                                  "squeeze",
                                  "squeeze.dim",
                                  "transpose.int",
                                  "unbind.int",
                                  "unsqueeze",
                                  "values",
                                  "view"};
constexpr const char* kDeviceNeutral[] = {"_nested_from_padded_and_nested_example",
                                          "_nested_select_backward",
                                          "_to_copy",
                                          "abs",
                                          "abs_",
                                          "add.Tensor",
                                          "add_.Tensor",
                                          "bmm",
                                          "cat",
                                          "clone",
                                          "copy_",
                                          "cos",
                                          "div.Scalar",
                                          "div.Tensor",
                                          "embedding",
                                          "empty_like",
                                          "eq.Scalar",
                                          "eq.Tensor",
                                          "fill_.Scalar",
                                          "fill_.Tensor",
                                          "ge.Scalar",
                                          "gelu",
                                          "gelu_",
                                          "gelu_backward",
                                          "gt.Scalar",
                                          "isinf",
                                          "isnan",
                                          "isneginf",
                                          "isposinf",
                                          "linear",
                                          "linear_backward",
                                          "logical_not",
                                          "logical_not_",
                                          "masked_fill.Scalar",
                                          "matmul",
                                          "matmul_backward",
                                          "mul.Scalar",
                                          "mul.Tensor",
                                          "mul_.Scalar",
                                          "mul_.Tensor",
                                          "native_dropout",
                                          "native_dropout_backward",
                                          "neg",
                                          "neg_",
                                          "normal_",
                                          "ones_like",
                                          "relu",
                                          "relu_",
                                          "sgn",
                                          "sgn_",
                                          "silu",
                                          "silu_",
                                          "silu_backward",
                                          "sin",
                                          "sqrt",
                                          "sub.Tensor",
                                          "tanh",
                                          "tanh_",
                                          "threshold_backward",
                                          "to_padded_tensor",
                                          "where.self",
                                          "zero_"};

void on_the_buffer(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(c10::DispatchKey::NestedTensorCPU, *stack);
}

// The same for operators that make a nested tensor of a dense one.
void from_dense(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(c10::DispatchKey::CPU, *stack);
}

void on_the_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(fallback_enabled(), "Could not run '", c10::toString(op.operator_name()),
                              "' with arguments from the 'NestedTensornpu' backend: npu has no kernel of it for nested "
                              "tensors of strided layout, and NPU_FALLBACK=0 keeps it from running on the CPU. Use "
                              "layout=torch.jagged, or padded tensors and a mask.");
  run_on_cpu(op, stack, c10::DispatchKey::NestedTensorCPU);
}

// The fast path of nn.TransformerEncoder: the layer runs on padded sequences and a mask.
Tensor encoder_layer(const Tensor& src, int64_t embed_dim, int64_t num_heads, const Tensor& qkv_weight,
                     const Tensor& qkv_bias, const Tensor& proj_weight, const Tensor& proj_bias, bool use_gelu,
                     bool norm_first, double eps, const Tensor& norm_weight_1, const Tensor& norm_bias_1,
                     const Tensor& norm_weight_2, const Tensor& norm_bias_2, const Tensor& ffn_weight_1,
                     const Tensor& ffn_bias_1, const Tensor& ffn_weight_2, const Tensor& ffn_bias_2,
                     const std::optional<Tensor>& mask, std::optional<int64_t> /*mask_type*/) {
  TORCH_CHECK(!mask.has_value(), "NestedTensor with mask is not supported yet");
  const Tensor padded = src.to_padded_tensor(0.0);
  const Tensor lengths = src._nested_tensor_size().select(1, 0);
  const Tensor beyond = at::arange(padded.size(1), kLong).unsqueeze(0).ge(lengths.unsqueeze(1)).to(padded.device());
  const Tensor result = at::_transformer_encoder_layer_fwd(
      padded, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
      norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2,
      beyond, /*mask_type=*/1);
  return at::_nested_from_padded_and_nested_example(result, src);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  for (const char* name : kViews) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_the_buffer>());
  for (const char* name : kDeviceNeutral) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_the_buffer>());
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(encoder_layer));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"_nested_from_padded", "_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned",
                           "_nested_view_from_buffer"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&from_dense>());
  }
}

}  // namespace at::native::npu
