#pragma once
// Outputs in the memory format of their operands: channels-last stays channels-last, as on the CPU.

#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Structured.h>

namespace at::native::npu {

// A tensor like an image that is contiguous or channels-last as it is (by its strides, where one of a pixel or a
// channel is both); contiguous if it is neither.
inline Tensor empty_suggested(const Tensor& like) {
  return new_output(like.sizes(), {}, like.options().memory_format(like.suggest_memory_format()));
}

}  // namespace at::native::npu
