#pragma once
// Copies of strided operands that an IR operator does not need: it broadcasts by itself what the host has expanded,
// reduces over other axes where the host has permuted, or takes images as NHWC that are channels-last.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/DimVector.h>

namespace at::native::npu {

// Whether CANN documents that the operator takes operands of different shapes, and broadcasts them.
bool broadcasts(const char* ir);
// Whether the operator reduces its first operand over the axes that the second one lists.
bool reduces(const char* ir);
// Whether the operator takes images as NHWC, with attribute data_format, and no other attribute depends on it.
bool takes_rows(const char* ir);
// The ACL type of an operand. CANN has none of some float8 types, of bits and of numbers below a byte. What moves
// elements, whatever they mean, takes them as bytes or pairs of bytes, as far as upstream does; others refuse them.
aclDataType operand_dtype_without_acl(const char* ir, ScalarType type);
inline aclDataType operand_dtype(const char* ir, ScalarType type) {
  return C10_LIKELY(has_acl_dtype(type)) ? acl_dtype(type) : operand_dtype_without_acl(ir, type);
}

// True if some dimension of the view has the same element over and over.
inline bool is_expanded(const TensorImpl& t) {
  if (t.is_contiguous()) return false;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) == 0 && t.size(d) != 1) return true;
  }
  return false;
}

// True if the tensor is channels-last and not contiguous as well.
inline bool is_in_rows(const TensorImpl& t) {
  return t.dim() == 4 && !t.is_contiguous() && t.is_contiguous(MemoryFormat::ChannelsLast);
}

// A reduction of a dense tensor, as one of a contiguous tensor over the same memory.
struct OrderedReduction {
  DimVector sizes;   // of the operand
  DimVector axes;    // in the same sequence as those of the original
  DimVector result;  // sizes of the result, whose memory is the same
};
// False if there is none: the operand is not dense, or the result's elements would come in another order.
bool order_reduction(const Tensor& t, IntArrayRef axes, bool keep_dims, OrderedReduction& ordered);

}  // namespace at::native::npu
