// Values between Scalar and host memory.

#include <ATen/native/npu/frame/command/HostScalar.h>

#include <ATen/Dispatch_v2.h>
#include <c10/core/DynamicCast.h>

#include <cstring>
#include <type_traits>

namespace at::native::npu {

#define NPU_ALL_TYPES                                                                                                 \
  AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), kHalf, kBFloat16, kBool, kComplexHalf, \
      AT_EXPAND(AT_FLOAT8_TYPES)

Scalar read_scalar(const void* data, ScalarType dtype) {
  Scalar value;
  AT_DISPATCH_V2(dtype, "read_scalar", AT_WRAP([&] {
                   scalar_t element;
                   std::memcpy(static_cast<void*>(&element), data, sizeof(element));
                   value = Scalar(element);
                 }),
                 NPU_ALL_TYPES);
  return value;
}

void write_scalar(const Scalar& value, ScalarType dtype, void* data) {
  AT_DISPATCH_V2(dtype, "write_scalar", AT_WRAP([&] {
                   scalar_t element;
                   if constexpr (std::is_integral_v<scalar_t>) {
                     element = value.to<scalar_t>();
                   } else if (value.isComplex()) {
                     element = c10::convert<scalar_t>(value.toComplexDouble());
                   } else {
                     element = c10::convert<scalar_t>(value.toDouble());
                   }
                   std::memcpy(data, static_cast<const void*>(&element), sizeof(element));
                 }),
                 NPU_ALL_TYPES);
}

void write_cast(const Tensor& tensor, ScalarType dtype, void* data) {
  if (tensor.is_conj() || tensor.is_neg()) {
    write_scalar(read_cpu_scalar(tensor), dtype, data);
    return;
  }
  AT_DISPATCH_V2(dtype, "write_cast", AT_WRAP([&] {
                   const auto element = c10::fetch_and_cast<scalar_t>(tensor.scalar_type(), tensor.const_data_ptr());
                   std::memcpy(data, static_cast<const void*>(&element), sizeof(element));
                 }),
                 NPU_ALL_TYPES);
}

void check_fits(const Scalar& value, ScalarType dtype) {
  AT_DISPATCH_V2(dtype, "fill", AT_WRAP([&] { static_cast<void>(value.to<scalar_t>()); }), NPU_ALL_TYPES);
}

Scalar read_cpu_scalar(const Tensor& tensor) {
  Scalar value = read_scalar(tensor.const_data_ptr(), tensor.scalar_type());
  if (tensor.is_conj()) value = value.conj();
  return tensor.is_neg() ? -value : value;
}

}  // namespace at::native::npu
