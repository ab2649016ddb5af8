#pragma once
// Storages of the device that grow and shrink.

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/OptionalArrayRef.h>

namespace at::native::npu {

// Gives the storage `bytes` of new memory and keeps what fits of its content.
void resize_storage(StorageImpl* storage, size_t bytes);

// Sets sizes (and strides, else contiguous) and lets the storage grow if they need more.
void resize_tensor(const Tensor& self, IntArrayRef sizes, OptionalIntArrayRef strides);

}  // namespace at::native::npu
