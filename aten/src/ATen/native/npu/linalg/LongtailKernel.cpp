// Rarely used operators that are a few others, and those whose result's size is known on the device only.

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Dims.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

// ---- Matrix products

// The sum of products over the batch is one product of matrices that lie side by side.
Tensor addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta, const Scalar& alpha) {
  DeviceOf guard(self);
  TORCH_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(batch1.size(0) == batch2.size(0), "batch1 and batch2 must have same number of batches, got ",
              batch1.size(0), " and ", batch2.size(0));
  TORCH_CHECK(batch1.size(2) == batch2.size(1), "Incompatible matrix sizes for bmm (", batch1.size(1), "x",
              batch1.size(2), " and ", batch2.size(1), "x", batch2.size(2), ")");
  const int64_t rows = batch1.size(1), columns = batch2.size(2);
  const Tensor start = *at::expand_size(self, {rows, columns}, "addbmm");
  return at::addmm(start, batch1.transpose(0, 1).reshape({rows, -1}), batch2.reshape({-1, columns}), beta, alpha);
}
Tensor& addbmm_(Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta, const Scalar& alpha) {
  return give(npu::addbmm(self, batch1, batch2, beta, alpha), self);
}
Tensor& addbmm_out(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                   const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "addbmm: expected out to have dtype ", self.scalar_type(),
              ", but got ", out.scalar_type());
  return give(npu::addbmm(self, batch1, batch2, beta, alpha), out);
}

Tensor& addmm_activation_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                             const Scalar& alpha, bool use_gelu, Tensor& out) {
  const Tensor sum = at::addmm(self, mat1, mat2, beta, alpha);
  return give(use_gelu ? at::gelu(sum) : at::relu(sum), out);
}

// ---- out= forms that are particular about dtypes

Tensor& bernoulli_out(const Tensor& self, std::optional<Generator> generator, Tensor& out) {
  check_dtype(out.scalar_type(), kDtypeFloat | kDtypeInt | kDtypeBool, "bernoulli_tensor_cpu_self_");
  at::native::resize_output(out, self.sizes());
  at::assert_no_internal_overlap(out);
  return out.bernoulli_(self, generator);
}

Tensor& multinomial_out(const Tensor& self, int64_t num_samples, bool replacement, std::optional<Generator> generator,
                        Tensor& out) {
  TORCH_CHECK(out.scalar_type() == kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  return give(at::multinomial(self, num_samples, replacement, generator), out);
}

Tensor& narrow_copy_out(const Tensor& self, int64_t dim, int64_t start, int64_t length, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "narrow_copy: expected out to have dtype ", self.scalar_type(),
              ", but got ", out.scalar_type());
  return give(at::narrow_copy(self, dim, start, length), out);
}

// ---- One call for two

std::tuple<Tensor, Tensor> aminmax_of_all(const Tensor& self) { return at::aminmax(self); }
std::tuple<Tensor, Tensor> aminmax_along(const Tensor& self, int64_t dim, bool keepdim) {
  return at::aminmax(self, dim, keepdim);
}

Tensor remainder_of_scalar(const Scalar& self, const Tensor& other) {
  return at::remainder(at::native::wrapped_scalar_tensor(self), other);
}

// ---- Tensors without memory, and tokens

Tensor efficientzerotensor(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout> /*layout*/,
                           std::optional<Device> device, std::optional<bool> /*pin_memory*/) {
  at::native::ZeroTensorAllocator allocator(resolve_device(device));
  const auto keys = DispatchKeySet(DispatchKey::PrivateUse1).add(DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &allocator, keys,
                                   dtype.value_or(typeMetaToScalarType(caffe2::TypeMeta::Make<float>())), std::nullopt);
}

Tensor make_dep_token(std::optional<ScalarType> dtype, std::optional<Layout> /*layout*/, std::optional<Device> device,
                      std::optional<bool> /*pin_memory*/, std::optional<MemoryFormat> /*memory_format*/) {
  return empty_npu({}, dtype.value_or(kFloat), resolve_device(device));
}

Tensor functional_assert_async(const Tensor& self, std::string_view assert_msg, const Tensor& dep_token) {
  at::_assert_async(self, assert_msg);
  return dep_token.clone();
}

// ---- Sets of slices

std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor& self, int64_t dim, bool /*sorted*/, bool return_inverse,
                                              bool return_counts) {
  DeviceOf guard(self);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypeInt | kDtypeBool, "unique_dim");
  const int64_t axis = wrapped(self, dim);
  const Device device = self.device();
  const int64_t n = self.dim() > 0 ? self.size(axis) : 1;
  if (self.numel() == 0) {
    TORCH_CHECK(n == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
    return {self.clone(), empty_npu({0}, kLong, device), empty_npu({0}, kLong, device)};
  }
  const Tensor values = empty_as(self), found = empty_npu({}, kLong, device);
  const Tensor positions = empty_npu({n}, kLong, device), times = empty_npu({n}, kLong, device);
  OpCommand cmd;
  cmd.Name("UniqueAlongAxis").Input(self).Output(values).Output(positions).Output(times).Output(found);
  cmd.Attr("axis", axis).Run();
  // How many there are is known on the device only.
  const auto count = found.item<int64_t>();
  const Tensor none = empty_npu({0}, kLong, device);
  return {self.dim() > 0 ? values.narrow(axis, 0, count).clone() : values, return_inverse ? positions : none,
          return_counts ? times.narrow(0, 0, count).clone() : none};
}

std::tuple<Tensor, Tensor, Tensor> unique_dim_consecutive(const Tensor& self, int64_t dim, bool return_inverse,
                                                          bool return_counts) {
  return npu::unique_consecutive(self, return_inverse, return_counts, dim);
}

// ---- Bags of embeddings

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
