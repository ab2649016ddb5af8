// Growing storages: new memory, a copy on the device, the old memory back to the allocator.

#include <ATen/native/npu/frame/inference/Resize.h>

#include <ATen/EmptyTensor.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/FormatCast.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUTaskQueue.h>

#include <algorithm>

namespace at::native::npu {

void resize_storage(StorageImpl* storage, size_t bytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  DeviceOf guard(storage->device());
  make_storage_plain(storage);
  DataPtr data = c10::npu::NPUCachingAllocator::get()->allocate(bytes);
  const size_t kept = std::min(bytes, storage->nbytes());
  if (kept > 0) {
    const auto stream = c10::npu::getCurrentNPUStream(storage->device().index());
    c10::npu::memcpy_async(data.get(), storage->data(), kept, ACL_MEMCPY_DEVICE_TO_DEVICE, stream);
    // The old memory goes back to the stream that it was made on, which may be another.
    c10::npu::NPUCachingAllocator::recordStream(storage->data_ptr(), stream);
  }
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(bytes);
}

void resize_tensor(const Tensor& self, IntArrayRef sizes, OptionalIntArrayRef strides) {
  TensorImpl* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() == sizes && (!strides.has_value() || impl->strides() == *strides)) return;
  const size_t item = impl->itemsize();
  size_t bytes = 0;
  if (strides.has_value()) {
    bytes = at::detail::computeStorageNbytes(sizes, *strides, item, impl->storage_offset());
    impl->set_sizes_and_strides(sizes, *strides);
  } else {
    bytes = at::detail::computeStorageNbytesContiguous(sizes, item, impl->storage_offset());
    impl->set_sizes_contiguous(sizes);
  }
  if (impl->numel() == 0) return;
  StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) resize_storage(storage, bytes);
}

}  // namespace at::native::npu
