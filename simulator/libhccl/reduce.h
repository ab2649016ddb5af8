#pragma once
// What collectives compute: sums and kin over the ranks' buffers. fp16 and bf16 accumulate in fp32 and are rounded
// once.

#include <hccl/hccl_types.h>

#include <cstddef>

namespace hccl_sim {

// Bytes of an element; 0 for a type that there is not.
size_t element_size(HcclDataType type);
const char* type_name(HcclDataType type);
const char* reduce_name(HcclReduceOp op);
// Whether elements of that type can be reduced.
bool reducible(HcclDataType type);

// out = in[0] op in[1] op ... in that order, for `count` elements, written to each of `outs`. An output may be one of
// the inputs; inputs and outputs do not overlap otherwise.
void reduce(HcclDataType type, HcclReduceOp op, const void* const* in, size_t inputs, void* const* outs, size_t outputs,
            size_t count);

// Multiplies by a factor, for faults on demand.
void scale(HcclDataType type, void* data, size_t count, float factor);

}  // namespace hccl_sim
