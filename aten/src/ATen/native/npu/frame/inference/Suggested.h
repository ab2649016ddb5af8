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

// A tensor like the one operand of an elementwise operator, arranged as upstream's TensorIterator does: the strides of
// dimensions of one element are the format's, not the operand's.
inline Tensor empty_iterated(const Tensor& like) {
  if (like.is_contiguous()) return empty_as(like);
  if (!like.is_contiguous(MemoryFormat::ChannelsLast)) return empty_preserved(like, like.scalar_type());
  return new_output(like.sizes(), {}, like.options().memory_format(MemoryFormat::ChannelsLast));
}

}  // namespace at::native::npu
