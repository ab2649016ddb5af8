#pragma once
// Parts of a captured graph whose operators can be given other arguments later (torch.npu.graph_task_*).
//
// Note [Updates of a graph]
// Between update_begin and update_end the stream records what is put on it, as in a capture, and AscendCL puts that in
// the place of the group's tasks. What the operators allocate meanwhile comes from a private pool of the group's own,
// not from the graph's: memory that is free in the graph's pool at the end of the capture is in use at other places of
// a replay. The next update takes the same pool again, since what the last one recorded is replaced by it.

#include <ATen/npu/NPUMacros.h>
#include <acl/acl.h>
#include <c10/npu/NPUStream.h>

namespace at::npu {

// What is captured on the stream between the two can be replaced; the handle stands for it as long as the graph lives.
TORCH_NPU_API void graph_task_group_begin(const c10::npu::NPUStream& stream);
TORCH_NPU_API void* graph_task_group_end(const c10::npu::NPUStream& stream);
// What is put on the stream between the two, which is not the one of the capture, replaces a group's tasks.
TORCH_NPU_API void graph_task_update_begin(const c10::npu::NPUStream& stream, void* handle);
TORCH_NPU_API void graph_task_update_end(const c10::npu::NPUStream& stream);

// The graph is gone, and with it the memory of its groups.
void forget_task_groups(aclmdlRI graph);

}  // namespace at::npu
