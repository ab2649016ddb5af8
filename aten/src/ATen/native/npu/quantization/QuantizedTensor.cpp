// What quantized npu tensors can do: be made, copied, viewed, compared and asked for their codes and quantizer. All of
// it moves codes; every other operator says that it has no kernel for them.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Resize.h>
#include <ATen/native/npu/quantization/Quantized.h>
#include <ATen/ops/_empty_affine_quantized_native.h>
#include <ATen/ops/_empty_per_channel_affine_quantized_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/dequantize_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_quantized_native.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/fill_native.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/le.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/q_per_channel_axis_native.h>
#include <ATen/ops/q_per_channel_scales_native.h>
#include <ATen/ops/q_per_channel_zero_points_native.h>
#include <ATen/ops/q_scale_native.h>
#include <ATen/ops/q_zero_point_native.h>
#include <ATen/ops/qscheme_native.h>
#include <ATen/ops/squeeze_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/unsqueeze_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/quantized/QTensorImpl.h>
#include <NPUNativeFunctions.h>
#include <torch/library.h>

namespace at::native::npu {

Tensor codes_of(const Tensor& quantized) {
  const DispatchKeySet keys(quantized.is_cpu() ? DispatchKey::CPU : DispatchKey::PrivateUse1);
  Tensor codes = at::detail::make_tensor<TensorImpl>(Storage(quantized.storage()), keys,
                                                     scalarTypeToTypeMeta(toUnderlying(quantized.scalar_type())));
  TensorImpl* impl = codes.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(quantized.sizes(), quantized.strides());
  impl->set_storage_offset(quantized.storage_offset());
  return codes;
}

Tensor quantized_over(const Tensor& codes, const QuantizerPtr& quantizer) {
  const DispatchKeySet keys(codes.is_cpu() ? DispatchKey::QuantizedCPU : DispatchKey::QuantizedPrivateUse1);
  Tensor result = at::detail::make_tensor<QTensorImpl>(
      Storage(codes.storage()), keys, scalarTypeToTypeMeta(toQIntType(codes.scalar_type())), quantizer);
  result.unsafeGetTensorImpl()->set_sizes_and_strides(codes.sizes(), codes.strides());
  result.unsafeGetTensorImpl()->set_storage_offset(codes.storage_offset());
  return result;
}

QuantizerPtr quantizer_on(const Tensor& quantized, Device device) {
  QuantizerPtr quantizer = quantized.quantizer();
  const QScheme scheme = quantizer->qscheme();
  if (scheme != kPerChannelAffine && scheme != kPerChannelAffineFloatQParams) return quantizer;
  const auto& channels = static_cast<const PerChannelAffineQuantizer&>(*quantizer);
  if (channels.scales().device() == device) return quantizer;
  return make_per_channel_affine_quantizer(channels.scales().to(device), channels.zero_points().to(device),
                                           channels.axis(), quantizer->scalar_type());
}

namespace {

// ---- New tensors ----

DeviceOf on(std::optional<Device> device) {
  return DeviceOf(device.has_value() && device->is_privateuseone() ? *device : Device(kPrivateUse1));
}

Tensor empty_unknown(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout> layout,
                     std::optional<Device> device, std::optional<bool> pin_memory,
                     std::optional<MemoryFormat> memory_format) {
  check_whole_bytes(dtype.value_or(kQUInt8), "empty");
  DeviceOf guard = on(device);
  return at::native::empty_unknown_quantized(size, dtype, layout, device, pin_memory, memory_format);
}

Tensor empty_tensor(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout> layout,
                    std::optional<Device> device, std::optional<bool> pin_memory, double scale, int64_t zero_point,
                    std::optional<MemoryFormat> memory_format) {
  check_whole_bytes(dtype.value_or(kQUInt8), "_empty_affine_quantized");
  DeviceOf guard = on(device);
  return at::native::empty_affine_quantized(size, dtype, layout, device, pin_memory, scale, zero_point, memory_format);
}

// Also reached for a CPU tensor whose scales are on npu.
Tensor empty_channels(IntArrayRef size, const Tensor& scales, const Tensor& zero_points, int64_t axis,
                      std::optional<ScalarType> dtype, std::optional<Layout> layout, std::optional<Device> device,
                      std::optional<bool> pin_memory, std::optional<MemoryFormat> memory_format) {
  const Device target = device.value_or(kCPU);
  if (target.is_privateuseone()) check_whole_bytes(dtype.value_or(kQUInt8), "_empty_per_channel_affine_quantized");
  DeviceOf guard = on(target);
  return at::native::empty_per_channel_affine_quantized(size, scales.to(target), zero_points.to(target), axis, dtype,
                                                        layout, device, pin_memory, memory_format);
}

// ---- Copies ----

Tensor& copy_quantized_(Tensor& self, const Tensor& src, bool non_blocking) {
  if (self.is_same(src)) return self;
  TORCH_CHECK(self.is_quantized(),
              "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a "
              "float Tensor from a quantized Tensor");
  Tensor target = codes_of(self);
  if (!src.is_quantized()) {
    TORCH_CHECK(src.scalar_type() == kFloat, "Quantized copy only works with kFloat as source Tensor");
    TORCH_CHECK(self.sizes() == src.sizes(), "Quantized copy only works with Tensors with the same shape");
    target.copy_(codes_of(self.quantizer()->quantize(src.to(self.device()))), non_blocking);
    return self;
  }
  TORCH_CHECK(self.scalar_type() == src.scalar_type(), "Quantized copy only works between tensors of one dtype, got ",
              self.scalar_type(), " and ", src.scalar_type());
  const QuantizerPtr quantizer = quantizer_on(src, self.device());
  TORCH_CHECK(self.qscheme() == quantizer->qscheme(), "Quantized Copy only works with same qscheme");
  target.copy_(codes_of(src), non_blocking);
  set_quantizer_(self, quantizer);
  return self;
}

Tensor copy_quantized_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  Tensor target = dst;
  return copy_quantized_(target, self, non_blocking);
}

Tensor to_copy(const Tensor& self, std::optional<ScalarType> dtype, std::optional<Layout> layout,
               std::optional<Device> device, std::optional<bool> pin_memory, bool non_blocking,
               std::optional<MemoryFormat> memory_format) {
  TORCH_CHECK(self.is_quantized(), "A tensor becomes quantized by quantize_per_tensor or quantize_per_channel, not by ",
              "a conversion to ", dtype.value_or(kQUInt8));
  TORCH_CHECK(dtype.value_or(self.scalar_type()) == self.scalar_type(), "A ", self.scalar_type(),
              " tensor has no conversion to ", *dtype, ": dequantize() gives numbers, int_repr() gives codes");
  TORCH_CHECK(layout.value_or(kStrided) == kStrided && !pin_memory.value_or(false),
              "Quantized tensors have the strided layout and are not pinned");
  check_whole_bytes(self.scalar_type(), "to");
  auto format = memory_format.value_or(MemoryFormat::Preserve);
  if (format == MemoryFormat::Preserve) {
    // As upstream: only what has gaps keeps an order of dimensions.
    format = self.is_non_overlapping_and_dense() ? MemoryFormat::Contiguous : self.suggest_memory_format();
  }
  const Device target = device.value_or(self.device());
  const Tensor codes = codes_of(self);
  const Tensor moved = codes.to(target, codes.scalar_type(), non_blocking, /*copy=*/true, format);
  return quantized_over(moved, quantizer_on(self, moved.device()));
}

// ---- Codes ----

Tensor int_repr(const Tensor& self) {
  DeviceOf guard(self);
  return codes_of(self).clone(self.suggest_memory_format());
}

bool equal_quantized(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ",
              other.device(), "! (when checking arguments of aten::equal)");
  if (!self.is_quantized() || !other.is_quantized() || self.sizes() != other.sizes()) return false;
  return self.quantizer()->equalTo(other.quantizer()) && at::equal(codes_of(self), codes_of(other));
}

// As upstream's: numbers are compared, not codes.
template <Tensor (*kTensor)(const Tensor&, const Tensor&), Tensor (*kScalar)(const Tensor&, const Scalar&)>
void add_comparison(torch::Library& m, const std::string& name) {
  m.impl((name + ".Tensor").c_str(),
         [](const Tensor& self, const Tensor& other) { return kTensor(self.dequantize(), other.dequantize()); });
  m.impl((name + ".Scalar").c_str(),
         [](const Tensor& self, const Scalar& other) { return kScalar(self.dequantize(), other); });
}

const QuantizerPtr& one_scale(const QuantizerPtr& quantizer, const char* name) {
  TORCH_CHECK(quantizer->qscheme() == kPerTensorAffine, name, " of a quantized npu tensor needs one scale for the ",
              "whole tensor; dequantize() it first");
  return quantizer;
}

Tensor flip_quantized(const Tensor& self, IntArrayRef dims) {
  return quantized_over(at::flip(codes_of(self), dims), one_scale(self.quantizer(), "flip"));
}

Tensor index_select_quantized(const Tensor& self, int64_t dim, const Tensor& index) {
  return quantized_over(at::index_select(codes_of(self), dim, index), one_scale(self.quantizer(), "index_select"));
}

Tensor index_quantized(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  return quantized_over(at::index(codes_of(self), indices), one_scale(self.quantizer(), "index"));
}

const Tensor& resize_quantized_(const Tensor& self, IntArrayRef size, std::optional<MemoryFormat> memory_format) {
  TORCH_CHECK(!memory_format.has_value(), "Unsupported memory format for quantized tensor resize ", *memory_format);
  TORCH_CHECK(self.quantizer()->qscheme() == kPerTensorAffine,
              "Can only resize quantized tensors with per-tensor schemes!");
  at::detail::check_size_nonnegative(size);
  resize_tensor(self, size, std::nullopt);
  return self;
}

// Nothing runs on codes by chance: an operator that is not named below has no meaning for them.
void no_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", c10::toString(op.operator_name()),
                              "' with arguments from the 'Quantizednpu' backend: it has no kernel for quantized npu "
                              "tensors. Call dequantize() on them first, and quantize the result.");
}

// Composites of upstream that read the memory of their operands on the host, or pack it for the CPU.
void cpu_only(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", c10::toString(op.operator_name()),
                              "' with arguments from the 'npu' backend: it works in host memory. Call cpu() on them "
                              "first.");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&no_kernel>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name :
       {"choose_qparams_optimized", "fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight.out",
        "fbgemm_linear_fp16_weight_fp32_activation", "fbgemm_linear_fp16_weight_fp32_activation.out",
        "fbgemm_linear_int8_weight", "fbgemm_linear_int8_weight_fp32_activation", "fbgemm_linear_quantize_weight",
        "fbgemm_pack_gemm_matrix_fp16", "fbgemm_pack_quantized_matrix", "fbgemm_pack_quantized_matrix.KN"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&cpu_only>());
  }
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  // New tensors
  m.impl("empty.memory_format", TORCH_FN(empty_unknown));
  m.impl("empty_like", TORCH_FN(at::native::empty_like_quantized));
  m.impl("empty_quantized", TORCH_FN(at::native::empty_quantized));
  m.impl("_empty_affine_quantized", TORCH_FN(empty_tensor));
  m.impl("_empty_per_channel_affine_quantized", TORCH_FN(empty_channels));
  // Copies
  m.impl("copy_", TORCH_FN(copy_quantized_));
  m.impl("_copy_from", TORCH_FN(copy_quantized_from));
  m.impl("_to_copy", TORCH_FN(to_copy));
  m.impl("clone", TORCH_FN(at::native::quantized_clone));
  m.impl("fill_.Scalar", static_cast<Tensor& (*)(Tensor&, const Scalar&)>(&at::native::fill_quantized_));
  m.impl("fill_.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&)>(&at::native::fill_quantized_));
  // Views and storages
  m.impl("as_strided", TORCH_FN(at::native::as_strided_qtensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("squeeze", static_cast<Tensor (*)(const Tensor&)>(&at::native::squeeze_quantized));
  m.impl("squeeze.dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(&at::native::squeeze_quantized));
  m.impl("squeeze.dims", static_cast<Tensor (*)(const Tensor&, IntArrayRef)>(&at::native::squeeze_quantized));
  m.impl("unsqueeze", TORCH_FN(at::native::unsqueeze_quantized));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(npu::set_storage_offset));
  m.impl("resize_", TORCH_FN(resize_quantized_));
  m.impl("record_stream", TORCH_FN(npu::record_stream));
  // Numbers, codes, quantizer
  m.impl("dequantize.self", TORCH_FN(at::native::dequantize_quantized));
  m.impl("dequantize.tensors", TORCH_FN(at::native::dequantize_tensors_quantized_cpu));
  m.impl("int_repr", TORCH_FN(int_repr));
  m.impl("equal", TORCH_FN(equal_quantized));
  add_comparison<at::eq, at::eq>(m, "eq");
  add_comparison<at::ne, at::ne>(m, "ne");
  add_comparison<at::lt, at::lt>(m, "lt");
  add_comparison<at::le, at::le>(m, "le");
  add_comparison<at::gt, at::gt>(m, "gt");
  add_comparison<at::ge, at::ge>(m, "ge");
  m.impl("flip", TORCH_FN(flip_quantized));
  m.impl("index_select", TORCH_FN(index_select_quantized));
  m.impl("index.Tensor", TORCH_FN(index_quantized));
  m.impl("qscheme", TORCH_FN(at::native::qscheme_quant));
  m.impl("q_scale", TORCH_FN(at::native::q_scale_quant));
  m.impl("q_zero_point", TORCH_FN(at::native::q_zero_point_quant));
  m.impl("q_per_channel_scales", TORCH_FN(at::native::q_per_channel_scales));
  m.impl("q_per_channel_zero_points", TORCH_FN(at::native::q_per_channel_zero_points));
  m.impl("q_per_channel_axis", TORCH_FN(at::native::q_per_channel_axis));
  // Composites that fail on codes without naming themselves, or take them for plain integers
  for (const char* name : {"convolution", "mean", "mean.dim", "sort", "sort.stable", "view.dtype"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&no_kernel>());
  }
}

}  // namespace at::native::npu
