#pragma once
// The flight recorder: the last operations of all groups of the process, in upstream's format, which torchfrtrace
// reads. Off unless TORCH_HCCL_TRACE_BUFFER_SIZE (or TORCH_FR_BUFFER_SIZE) says how many to keep. A group that fails
// writes it to TORCH_HCCL_DEBUG_INFO_TEMP_FILE<rank> (/tmp/hccl_trace_rank_<rank>).

#include <ATen/core/Tensor.h>
#include <c10/npu/NPUEvent.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace c10d {

struct HCCLRecord {
  size_t group;
  std::string group_name, group_description;
  std::string title;
  bool message;  // between two ranks
  uint64_t sequence;
  std::chrono::milliseconds timeout;
};

void hccl_recorder_name_group(size_t group, const std::string& name, const std::string& description,
                              const std::vector<uint64_t>& ranks);
// The events must live until hccl_recorder_done; nullopt where nothing is recorded.
std::optional<size_t> hccl_recorder_add(const HCCLRecord& record, const std::vector<at::Tensor>& inputs,
                                        const std::vector<at::Tensor>& outputs, c10::npu::NPUEvent* begin,
                                        c10::npu::NPUEvent* end);
// The operation has ended, or its group has failed and the events are about to go.
void hccl_recorder_done(size_t id, bool completed);
void hccl_recorder_dump(int rank);
// The recorder's content, pickled as upstream does it.
std::string hccl_recorder_content(bool only_active);

}  // namespace c10d
