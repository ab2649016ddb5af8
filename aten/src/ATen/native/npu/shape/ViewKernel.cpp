// Tensors over the memory of others: views, storages that are set or resized, streams that use them.

#include <ATen/native/Resize.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/Resize.h>
#include <ATen/native/npu/frame/layout/Format.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <NPUNativeFunctions.h>
#include <c10/npu/NPUCachingAllocator.h>

namespace at::native::npu {

Tensor as_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

Tensor view(const Tensor& self, IntArrayRef size) { return at::native::view(self, size); }

Tensor _reshape_alias(const Tensor& self, IntArrayRef size, IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

Tensor view_as_real(const Tensor& self) { return at::native::view_as_real(self); }

Tensor view_as_complex(const Tensor& self) { return at::native::view_as_complex(self); }

const Tensor& resize_(const Tensor& self, IntArrayRef size, std::optional<MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(size);
  TORCH_CHECK(!self._is_zerotensor(),
              "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you want a mutable zero "
              "tensor.");
  const size_t before = self.storage().nbytes();
  resize_tensor(self, size, std::nullopt);
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  return self;
}

Tensor& set_storage_offset(Tensor& self, Storage source, int64_t storage_offset, IntArrayRef size, IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), storage_offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(storage_offset);
  resize_tensor(self, size, stride.data() != nullptr ? OptionalIntArrayRef(stride) : OptionalIntArrayRef());
  return self;
}

Tensor& set_storage(Tensor& self, Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_offset(self, std::move(source), 0, {count}, {});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor& set_nothing(Tensor& self) {
  const Tensor empty = empty_npu({0}, self.scalar_type(), self.device());
  return set_storage_offset(self, empty.storage(), 0, {0}, {});
}

void record_stream(Tensor& self, Stream stream) {
  c10::npu::NPUCachingAllocator::recordStream(allocation_of(self), c10::npu::NPUStream(stream));
}

// `param.data = tensor` and Module.to exchange CPU and npu tensors, which are TensorImpls of one make.
bool _has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  const auto dense = [](const Tensor& t) {
    return (t.is_cpu() || t.is_privateuseone()) && t.layout() == kStrided && !t.is_quantized() && !t.is_nested();
  };
  return (dense(self) && dense(from)) || self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

Tensor& narrow_copy_out(const Tensor& self, int64_t dim, int64_t start, int64_t length, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "narrow_copy: expected out to have dtype ", self.scalar_type(),
              ", but got ", out.scalar_type());
  return give(at::narrow_copy(self, dim, start, length), out);
}

}  // namespace at::native::npu
