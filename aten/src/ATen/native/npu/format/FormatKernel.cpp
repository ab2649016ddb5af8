// Casts between formats of device memory. What a format is: Note [Formats] in frame/layout/Format.h.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/FormatCast.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/ops/empty_like.h>
#include <NPUCustomFunctions.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

Tensor npu_format_cast(const Tensor& self, int64_t acl_format, std::optional<int64_t> customize_dtype) {
  if (self.is_meta()) return at::empty_like(self, MemoryFormat::Contiguous);
  return in_format(self, acl_format, block_for(self, acl_format, customize_dtype));
}

Tensor npu_format_cast_like(const Tensor& self, const Tensor& dst, std::optional<int64_t> customize_dtype) {
  return npu_format_cast(self, self.is_meta() ? 0 : format_of(dst), customize_dtype);
}

Tensor& npu_format_cast_(Tensor& self, int64_t acl_format, std::optional<int64_t> customize_dtype) {
  if (!self.is_meta()) change_format(self, acl_format, block_for(self, acl_format, customize_dtype));
  return self;
}

Tensor& npu_format_cast_from(Tensor& self, const Tensor& src) { return self.copy_(src); }

int64_t get_npu_format(const Tensor& self) { return format_of(self); }

// The storage of others: its format is the storage's own, so `npu_format` has to be that one or a plain one.
Tensor& npu_set_(Tensor& self, Storage source, int64_t storage_offset, int64_t npu_format, IntArrayRef size,
                 IntArrayRef stride) {
  // A list that is not given arrives empty: contiguous strides then.
  self.set_(std::move(source), storage_offset, size,
            stride.empty() ? IntArrayRef(c10::contiguous_strides(size)) : stride);
  if (!self.is_meta()) change_format(self, npu_format, block_for(self, npu_format, std::nullopt));
  return self;
}

}  // namespace at::native::npu
