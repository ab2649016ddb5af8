#pragma once
// What a quantized npu tensor is made of: codes in device memory, seen by operators as plain integers, and the
// quantizer that upstream keeps on the host.

#include <ATen/core/Tensor.h>
#include <ATen/quantized/Quantizer.h>

namespace at::native::npu {

// Note [Quantized tensors]
// The codes of a quint8, qint8 or qint32 tensor are uint8, int8 or int32 in the same memory: no operator of the device
// sees a quantized dtype. Scale and zero point of a tensor are numbers of the host; those of channels are two small
// tensors on the tensor's device. Codes of four or two bits have no IR type and are refused where a tensor is made.

// The codes as a plain integer tensor over the same memory, npu or CPU.
Tensor codes_of(const Tensor& quantized);

// A quantized tensor over the memory of plain codes, npu or CPU.
Tensor quantized_over(const Tensor& codes, const QuantizerPtr& quantizer);

// The quantizer of `quantized` for a tensor on `device`, to which scales and zero points of channels are copied.
QuantizerPtr quantizer_on(const Tensor& quantized, Device device);

// Throws for quantized dtypes of less than a byte.
void check_whole_bytes(ScalarType dtype, const char* name);

}  // namespace at::native::npu
