// The checks and resizes of out= and in-place operands, in upstream's words.

#include <ATen/native/npu/frame/inference/Structured.h>

namespace at::native::npu {

void check_inplace(const Tensor& self, IntArrayRef sizes, const TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
              " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
              " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(), " and output tensor size ",
              sizes, " should match");
}

void resize_out(const Tensor& out, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(), ", but got ",
              out.dtype(), " instead");
  TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ", options.device(), ", but got ",
              out.device(), " instead");
  if (!at::native::resize_output(out, sizes)) return;
  if (!strides.empty()) {
    TORCH_INTERNAL_ASSERT(!options.memory_format_opt().has_value());
    out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  } else if (options.memory_format_opt().has_value()) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  }
}

Tensor new_output(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
  const ScalarType dtype = typeMetaToScalarType(options.dtype());
  if (!strides.empty()) return empty_npu(sizes, strides, dtype, options.device());
  Tensor out = empty_npu(sizes, dtype, options.device());
  if (const auto format = options.memory_format_opt(); format.has_value() && *format != MemoryFormat::Contiguous) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return out;
}

}  // namespace at::native::npu
