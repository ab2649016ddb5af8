// What the caching allocator holds, and the history of how it came to that, as torch.cuda.memory shows it and
// pytorch.org/memory_viz reads it.

#include <c10/npu/NPUCachingAllocator.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <array>

// Declared here, since upstream's header for it needs nlohmann/json.
namespace torch {
std::vector<pybind11::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
}

namespace torch::npu {
namespace {

namespace py = pybind11;
namespace allocator = c10::npu::NPUCachingAllocator;

// Stacks are put into words together at the end, each into the dictionary it belongs to.
class Frames {
 public:
  void add(py::dict& owner, const std::shared_ptr<c10::GatheredContext>& context) {
    if (context == nullptr) {
      owner["frames"] = py::list();
      return;
    }
    owners_.push_back(owner);
    stacks_.push_back(torch::getCapturedTracebackFromContext(context));
  }
  void resolve() {
    const auto frames = torch::py_symbolize(stacks_);
    for (size_t i = 0; i < frames.size(); ++i) {
      owners_[i]["frames"] = frames[i];
    }
  }

 private:
  std::vector<py::dict> owners_;
  std::vector<torch::CapturedTraceback*> stacks_;
};

const char* block_state(const allocator::BlockInfo& block) {
  if (block.allocated) {
    return "active_allocated";
  }
  return block.active ? "active_pending_free" : "inactive";
}

py::dict segment_dict(const allocator::SegmentInfo& segment, Frames& frames) {
  py::dict d;
  d["device"] = static_cast<int>(segment.device);
  d["address"] = segment.address;
  d["total_size"] = segment.total_size;
  d["allocated_size"] = segment.allocated_size;
  d["active_size"] = segment.active_size;
  d["requested_size"] = segment.requested_size;
  d["stream"] = reinterpret_cast<uintptr_t>(segment.stream);
  d["segment_type"] = segment.is_large ? "large" : "small";
  d["segment_pool_id"] = py::make_tuple(segment.owner_private_pool_id.first, segment.owner_private_pool_id.second);
  d["is_expandable"] = segment.is_expandable;
  frames.add(d, segment.context_when_allocated);
  py::list blocks;
  size_t address = segment.address;
  for (const auto& block : segment.blocks) {
    py::dict b;
    b["address"] = address;
    b["size"] = block.size;
    b["requested_size"] = block.requested_size;
    b["state"] = block_state(block);
    frames.add(b, block.context_when_allocated);
    blocks.append(std::move(b));
    address += block.size;
  }
  d["blocks"] = std::move(blocks);
  return d;
}

py::dict trace_dict(const allocator::TraceEntry& entry, Frames& frames) {
  constexpr std::array kActions = {"alloc",         "free_requested", "free_completed",
                                   "segment_alloc", "segment_free",   "segment_map",
                                   "segment_unmap", "snapshot",       "oom"};
  py::dict d;
  d["action"] = kActions.at(static_cast<size_t>(entry.action_));
  d[entry.action_ == allocator::TraceEntry::OOM ? "device_free" : "addr"] = entry.addr_;
  d["size"] = entry.size_;
  d["stream"] = reinterpret_cast<uintptr_t>(entry.stream_);
  d["time_us"] = entry.time_.t_;
  d["segment_pool_id"] = py::make_tuple(entry.mempool_.first, entry.mempool_.second);
  frames.add(d, entry.context_);
  return d;
}

py::dict memory_snapshot(c10::MempoolId_t pool, bool include_traces) {
  const auto snapshot = allocator::snapshot(pool, include_traces);
  Frames frames;
  py::list segments;
  for (const auto& segment : snapshot.segments) {
    segments.append(segment_dict(segment, frames));
  }
  py::list traces;
  for (const auto& device_trace : snapshot.device_traces) {
    py::list entries;
    for (const auto& entry : device_trace) {
      entries.append(trace_dict(entry, frames));
    }
    traces.append(std::move(entries));
  }
  frames.resolve();
  py::dict d;
  d["segments"] = std::move(segments);
  d["device_traces"] = std::move(traces);
  return d;
}

std::shared_ptr<c10::GatheredContext> python_stack() { return torch::CapturedTraceback::gather(true, true, false); }
std::shared_ptr<c10::GatheredContext> whole_stack() { return torch::CapturedTraceback::gather(true, true, true); }

// `context` says of what the stacks are kept: "" nothing, "state" live blocks, "alloc" and "all" of the history, too.
void record_history(bool enabled, const std::string& context, bool cpp_frames, size_t max_entries, bool clear) {
  using c10::CachingDeviceAllocator::RecordContext;
  auto when = RecordContext::NEVER;
  if (context == "state") {
    when = RecordContext::STATE;
  } else if (context == "alloc") {
    when = RecordContext::ALLOC;
  } else if (context == "all") {
    when = RecordContext::ALL;
  }
  const auto recorder = when == RecordContext::NEVER ? nullptr : (cpp_frames ? whole_stack : python_stack);
  allocator::get()->recordHistory(enabled, recorder, max_entries, when, clear);
}

}  // namespace

void bind_memory_snapshot(py::module_& m) {
  m.def("_npu_memorySnapshot", torch::wrap_pybind_function(&memory_snapshot));
  m.def("_npu_recordMemoryHistory", torch::wrap_pybind_function(&record_history));
}

}  // namespace torch::npu
