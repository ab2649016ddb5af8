// Device tensors made straight from the caching allocator.

#include <ATen/native/npu/frame/inference/Allocate.h>

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/layout/Strides.h>
#include <c10/core/StorageImpl.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUFunctions.h>

namespace at::native::npu {

namespace {

constexpr DispatchKeySet kKeys(DispatchKey::PrivateUse1);

// A tensor without sizes over new memory; the device must be the current one.
Tensor with_bytes(size_t bytes, ScalarType dtype) {
  Allocator* allocator = c10::npu::NPUCachingAllocator::get();
  auto storage = c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), bytes, allocator->allocate(bytes),
                                                  allocator, /*resizable=*/true);
  return Tensor(
      c10::make_intrusive<TensorImpl, UndefinedTensorImpl>(std::move(storage), kKeys, scalarTypeToTypeMeta(dtype)));
}

}  // namespace

Tensor empty_as(const Tensor& like, ScalarType dtype) {
  DeviceOf guard(like);
  const TensorImpl& model = *like.unsafeGetTensorImpl();
  Tensor out = with_bytes(static_cast<size_t>(model.numel()) * c10::elementSize(dtype), dtype);
  out.unsafeGetTensorImpl()->set_sizes_contiguous(model.sizes());
  return out;
}

Tensor empty_npu(IntArrayRef sizes, ScalarType dtype, Device device) {
  at::detail::check_size_nonnegative(sizes);
  DeviceOf guard(device);
  Tensor out = with_bytes(at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype)), dtype);
  out.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return out;
}

Tensor empty_npu(IntArrayRef sizes, IntArrayRef strides, ScalarType dtype, Device device) {
  at::detail::check_size_nonnegative(sizes);
  DeviceOf guard(device);
  Tensor out = with_bytes(at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype)), dtype);
  out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return out;
}

Tensor empty_preserved(const Tensor& like, ScalarType dtype) {
  if (is_dense(like)) return empty_npu(like.sizes(), like.strides(), dtype, like.device());
  return empty_npu(like.sizes(), at::infer_dense_strides(like.sizes(), like.strides()), dtype, like.device());
}

Tensor alias(const Tensor& base, IntArrayRef sizes, IntArrayRef strides, int64_t offset) {
  Tensor out(c10::make_intrusive<TensorImpl, UndefinedTensorImpl>(Storage(base.storage()), kKeys, base.dtype()));
  out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  out.unsafeGetTensorImpl()->set_storage_offset(offset);
  return out;
}

Device resolve_device(std::optional<Device> device) {
  if (!device.has_value() || !device->has_index()) return Device(kPrivateUse1, c10::npu::current_device());
  TORCH_CHECK(device->is_privateuseone(), "Expected a npu device, but got: ", *device);
  return *device;
}

}  // namespace at::native::npu
