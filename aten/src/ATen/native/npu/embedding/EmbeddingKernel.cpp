// The gradient of an embedding table; the forward pass is upstream's composite around index_select.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

Tensor embedding_dense_backward(const Tensor& grad_output, const Tensor& indices, int64_t num_weights,
                                int64_t padding_idx, bool scale_grad_by_freq) {
  DeviceOf guard(grad_output);
  const Tensor dw = empty_npu({num_weights, grad_output.size(-1)}, grad_output.scalar_type(), grad_output.device());
  if (indices.numel() == 0) {
    dw.zero_();
  } else if (dw.numel() > 0) {
    OpCommand cmd;
    cmd.Name("EmbeddingDenseGrad").Input(grad_output).Input(indices).Output(dw).Attr("num_weights", num_weights);
    cmd.Attr("padding_idx", padding_idx).Attr("scale_grad_by_freq", scale_grad_by_freq).Run();
  }
  return dw;
}

Tensor embedding_bag_backward(const Tensor& grad, const Tensor& indices, const Tensor& offsets,
                              const Tensor& offset2bag, const Tensor& bag_size, const Tensor& maximum_indices,
                              int64_t num_weights, bool scale_grad_by_freq, int64_t mode, bool sparse,
                              const std::optional<Tensor>& per_sample_weights, int64_t padding_idx) {
  DeviceOf guard(grad);
  if (sparse) {
    return at::_embedding_bag_sparse_backward(grad, indices, offsets, offset2bag, bag_size, num_weights,
                                              scale_grad_by_freq, mode, per_sample_weights, padding_idx);
  }
  return at::_embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
                                           scale_grad_by_freq, mode, per_sample_weights, padding_idx);
}

}  // namespace at::native::npu
