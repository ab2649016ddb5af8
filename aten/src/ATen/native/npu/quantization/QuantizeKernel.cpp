// Numbers to codes and back. Upstream's functions check arguments, make the result and its quantizer, and call the
// device's part through dispatch stubs, registered at the end.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/quantization/Quantized.h>
#include <ATen/native/quantized/AffineQuantizer.h>
#include <ATen/ops/_empty_affine_quantized.h>
#include <ATen/ops/_empty_affine_quantized_native.h>
#include <ATen/ops/_empty_per_channel_affine_quantized.h>
#include <ATen/ops/_empty_per_channel_affine_quantized_native.h>
#include <ATen/ops/dequantize_native.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/quantize_per_channel_native.h>
#include <ATen/ops/quantize_per_tensor_dynamic_native.h>
#include <ATen/ops/quantize_per_tensor_native.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sub.h>
#include <NPUNativeFunctions.h>

#include <limits>

namespace at::native::npu {

namespace {

const char* name_of(ScalarType dtype) {
  switch (dtype) {
    case kQInt8:
      return "torch.qint8";
    case kQInt32:
      return "torch.qint32";
    default:
      return "torch.quint8";
  }
}

// Upstream leaves this to the device, since the zero points may be there.
void check_zero_points(const Tensor& zero_points, ScalarType dtype) {
  const auto [least, most] = [dtype]() -> std::pair<int64_t, int64_t> {
    if (dtype == kQInt8) return {std::numeric_limits<int8_t>::min(), std::numeric_limits<int8_t>::max()};
    if (dtype == kQUInt8) return {0, std::numeric_limits<uint8_t>::max()};
    return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  }();
  const Tensor values = zero_points.to(kCPU, kLong).contiguous();
  for (const int64_t value : ArrayRef<int64_t>(values.const_data_ptr<int64_t>(), values.numel())) {
    TORCH_CHECK(value <= most, "quantize_tensor_per_channel_affine zero_point ", value, " is above upper bound.");
    TORCH_CHECK(value >= least, "quantize_tensor_per_channel_affine zero_point ", value, " is below lower bound.");
  }
}

void quantize_tensor(const Tensor& real, Tensor& quantized, double scale, int64_t zero_point) {
  if (real.numel() == 0) return;
  DeviceOf guard(real);
  OpCommand cmd;
  cmd.Name("Quantize").Elementwise().Input(real).Input(Scalar(scale), kFloat).Input(Scalar(zero_point), kInt);
  cmd.Output(codes_of(quantized)).Attr("dtype", name_of(quantized.scalar_type())).Run();
}

// The IR operator takes scales in fp32, as upstream's kernels do, and zero points in int32 or fp32.
void quantize_channels_by(const Tensor& real, Tensor& quantized, const Tensor& scales, const Tensor& zero_points,
                          int64_t axis) {
  if (real.numel() == 0) return;
  DeviceOf guard(real);
  OpCommand cmd;
  cmd.Name("Quantize").Input(real).Input(cast(scales, kFloat)).Input(zero_points).Output(codes_of(quantized));
  cmd.Attr("dtype", name_of(quantized.scalar_type())).Attr("axis", axis).Run();
}

void quantize_channels(const Tensor& real, Tensor& quantized, const Tensor& scales, const Tensor& zero_points,
                       int64_t axis) {
  check_zero_points(zero_points, quantized.scalar_type());
  quantize_channels_by(real, quantized, scales, cast(zero_points, kInt), axis);
}

// Ascend restores only 8-bit codes, and to half precision: the difference and the product are operators of their own.
// Upstream subtracts integers and multiplies by a float here; where channels have their own numbers, it subtracts
// floats and multiplies by scales as they are kept: doubles, or floats beside zero points that are no integers.
void dequantize_tensor(const Tensor& quantized, Tensor& real, double scale, int64_t zero_point) {
  if (real.numel() == 0) return;
  DeviceOf guard(real);
  const Tensor steps = at::sub(cast(codes_of(quantized), kInt), Scalar(zero_point));
  at::mul_out(real, cast(steps, kFloat), at::scalar_tensor(scale, TensorOptions(kFloat).device(kCPU)));
}

void dequantize_channels(const Tensor& quantized, Tensor& real, const Tensor& scales, const Tensor& zero_points,
                         int64_t axis) {
  if (real.numel() == 0) return;
  DeviceOf guard(real);
  DimVector shape(static_cast<size_t>(real.dim()), 1);
  shape[static_cast<size_t>(axis)] = real.size(axis);
  const Tensor steps = at::sub(cast(codes_of(quantized), kFloat), cast(zero_points, kFloat).view(shape));
  real.copy_(at::mul(cast(steps, scales.scalar_type()), scales.view(shape)));
}

void refuse_sub_byte(const Tensor& /*from*/, Tensor& to, float /*scale*/, float /*zero_point*/) {
  check_whole_bytes(to.is_quantized() ? to.scalar_type() : kQUInt4x2, "quantized tensors");
}

}  // namespace

void check_whole_bytes(ScalarType dtype, const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != kQUInt4x2 && dtype != kQUInt2x4, '"', name, "\" not implemented for '",
                              toString(dtype),
                              "' on npu, which has quint8, qint8 and qint32 codes; quantize on the CPU");
}

Tensor quantize_per_tensor(const Tensor& self, double scale, int64_t zero_point, ScalarType dtype) {
  check_whole_bytes(dtype, "quantize_per_tensor");
  DeviceOf guard(self);
  return at::native::quantize_per_tensor(self, scale, zero_point, dtype);
}

Tensor quantize_per_tensor_tensor_qparams(const Tensor& self, const Tensor& scale, const Tensor& zero_point,
                                          ScalarType dtype) {
  check_whole_bytes(dtype, "quantize_per_tensor");
  DeviceOf guard(self);
  return at::native::quantize_per_tensor_tensor_qparams(self, scale, zero_point, dtype);
}

std::vector<Tensor> quantize_per_tensor_tensors(TensorList tensors, const Tensor& scales, const Tensor& zero_points,
                                                ScalarType dtype) {
  check_whole_bytes(dtype, "quantize_per_tensor");
  // One copy for all tensors' numbers.
  return at::native::quantize_per_tensor_list_cpu(tensors, scales.cpu(), zero_points.cpu(), dtype);
}

Tensor quantize_per_tensor_dynamic(const Tensor& self, ScalarType dtype, bool reduce_range) {
  DeviceOf guard(self);
  return at::native::quantize_per_tensor_dynamic(self, dtype, reduce_range);
}

Tensor quantize_per_channel(const Tensor& self, const Tensor& scales, const Tensor& zero_points, int64_t axis,
                            ScalarType dtype) {
  check_whole_bytes(dtype, "quantize_per_channel");
  DeviceOf guard(self);
  return at::native::quantize_per_channel(self, scales, zero_points, axis, dtype);
}

Tensor dequantize(const Tensor& self) { return at::native::dequantize_cpu_or_cuda(self); }

Tensor _make_per_tensor_quantized_tensor(const Tensor& self, double scale, int64_t zero_point) {
  const Tensor result = at::_empty_affine_quantized(self.sizes(), self.options().dtype(toQIntType(self.scalar_type())),
                                                    scale, zero_point, self.suggest_memory_format());
  codes_of(result).copy_(self);
  return result;
}

Tensor _make_per_channel_quantized_tensor(const Tensor& self, const Tensor& scales, const Tensor& zero_points,
                                          int64_t axis) {
  const Tensor result = at::_empty_per_channel_affine_quantized(self.sizes(), scales, zero_points, axis,
                                                                self.options().dtype(toQIntType(self.scalar_type())));
  codes_of(result).copy_(self);
  return result;
}

// A quantized dtype dispatches elsewhere: these only say so.
Tensor _empty_affine_quantized(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout> layout,
                               std::optional<Device> device, std::optional<bool> pin_memory, double scale,
                               int64_t zero_point, std::optional<MemoryFormat> memory_format) {
  return at::native::empty_affine_quantized_other_backends_stub(size, dtype, layout, device, pin_memory, scale,
                                                                zero_point, memory_format);
}

Tensor _empty_per_channel_affine_quantized(IntArrayRef size, const Tensor& scales, const Tensor& zero_points,
                                           int64_t axis, std::optional<ScalarType> dtype, std::optional<Layout> layout,
                                           std::optional<Device> device, std::optional<bool> pin_memory,
                                           std::optional<MemoryFormat> memory_format) {
  return at::native::empty_per_channel_affine_quantized_other_backends_stub(size, scales, zero_points, axis, dtype,
                                                                            layout, device, pin_memory, memory_format);
}

}  // namespace at::native::npu

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(quantize_tensor_per_tensor_affine_stub, &npu::quantize_tensor)
REGISTER_PRIVATEUSE1_DISPATCH(quantize_tensor_per_channel_affine_stub, &npu::quantize_channels)
REGISTER_PRIVATEUSE1_DISPATCH(quantize_tensor_per_channel_float_qparams_stub, &npu::quantize_channels_by)
REGISTER_PRIVATEUSE1_DISPATCH(quantize_tensor_per_tensor_affine_sub_byte_stub, &npu::refuse_sub_byte)
REGISTER_PRIVATEUSE1_DISPATCH(dequantize_tensor_per_tensor_affine_stub, &npu::dequantize_tensor)
REGISTER_PRIVATEUSE1_DISPATCH(dequantize_tensor_per_channel_affine_stub, &npu::dequantize_channels)
REGISTER_PRIVATEUSE1_DISPATCH(dequantize_tensor_per_channel_float_qparams_stub, &npu::dequantize_channels)
REGISTER_PRIVATEUSE1_DISPATCH(dequantize_tensor_per_tensor_affine_sub_byte_stub, &npu::refuse_sub_byte)

}  // namespace at::native
