// npu's own maximum and minimum along a dimension, with int32 indices, and their gradients.

#include <ATen/ATen.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

std::tuple<Tensor, Tensor> npu_max(const Tensor& self, int64_t dim, bool keepdim) {
  auto [values, indices] = at::max(self, dim, keepdim);
  return {values, indices.to(kInt)};
}

std::tuple<Tensor, Tensor> npu_min(const Tensor& self, int64_t dim, bool keepdim) {
  auto [values, indices] = at::min(self, dim, keepdim);
  return {values, indices.to(kInt)};
}

std::tuple<Tensor, Tensor> npu_max_names_dim(const Tensor& /*self*/, std::string_view dim, bool /*keepdim*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_max: torch 2.13 has no named tensors; give the index of dimension '", dim,
                              "' instead of its name");
}

std::tuple<Tensor, Tensor> npu_min_names_dim(const Tensor& /*self*/, std::string_view dim, bool /*keepdim*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_min: torch 2.13 has no named tensors; give the index of dimension '", dim,
                              "' instead of its name");
}

Tensor npu_max_backward(const Tensor& grad, int64_t dim, const Tensor& indices, IntArrayRef sizes, bool keepdim) {
  const Tensor zeros = at::zeros(sizes, grad.options());
  if (zeros.dim() == 0) return grad.clone();
  const Tensor index = (keepdim ? indices : indices.unsqueeze(dim)).to(kLong);
  return at::scatter(zeros, dim, index, keepdim ? grad : grad.unsqueeze(dim));
}

Tensor npu_min_backward(const Tensor& grad, int64_t dim, const Tensor& indices, IntArrayRef sizes, bool keepdim) {
  return npu_max_backward(grad, dim, indices, sizes, keepdim);
}

}  // namespace at::native::npu
