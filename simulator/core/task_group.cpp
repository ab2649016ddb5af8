// Groups of a graph's tasks, and their updates. See Note [Task groups].

#include "core/capture.h"
#include "core/capture_lock.h"
#include "core/device.h"
#include "core/error.h"
#include "core/graph_pool.h"
#include "core/stream.h"

#include <memory>
#include <utility>

namespace acl_sim {
namespace {

// What a handle stands for.
struct TaskGroup {
  Graph* graph;
  uint32_t stream;  // the number of the one it was captured on
  size_t index;     // of its task in the graph
};

std::mutex& handles_mutex() {
  static auto* value = new std::mutex;
  return *value;
}

std::map<void*, std::unique_ptr<TaskGroup>>& handles() {
  static auto* value = new std::map<void*, std::unique_ptr<TaskGroup>>;
  return *value;
}

TaskGroup group_of(void* handle) {
  const std::lock_guard<std::mutex> lock(handles_mutex());
  const auto found = handles().find(handle);
  if (found == handles().end())
    throw Error(handle ? ACL_ERROR_RT_INVALID_HANDLE : ACL_ERROR_INVALID_PARAM, format("%p is no task group", handle));
  return *found->second;
}

Graph& make_part(Device& device) {
  Graph& part = make_graph(device);
  part.alive.store(false);  // no handle of its own
  part.state.store(Graph::State::Ready);
  return part;
}

// The capture that the stream is in, for its groups.
Graph& capture_of(Stream& stream) {
  Graph* graph = stream.capture.load();
  if (!graph || graph->state.load() == Graph::State::Ready)
    throw Error(ACL_ERROR_RT_STREAM_NOT_CAPTURED, format("stream %u is not in capture", stream.number));
  if (graph->state.load() == Graph::State::Invalid)
    throw Error(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "the capture is invalid: " + graph->invalid_reason);
  return *graph;
}

}  // namespace

void begin_group(Stream& stream) {
  const CaptureLock lock;
  Graph& graph = capture_of(stream);
  if (graph.group_stream)
    throw Error(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                format("a task group on stream %u has not ended; groups do not overlap", graph.group_stream->number));
  graph.group = &make_part(*graph.device);
  graph.group_stream = &stream;
}

void* end_group(Stream& stream) {
  const CaptureLock lock;
  Graph& graph = capture_of(stream);
  if (graph.group_stream != &stream)
    throw Error(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, format("no task group began on stream %u", stream.number));
  Task task{};
  task.kind = TaskKind::Graph;
  task.graph = {std::exchange(graph.group, nullptr)};
  graph.group_stream = nullptr;
  graph.tasks.push_back(task);
  graph.task_streams.push_back(stream.number);
  auto group = std::make_unique<TaskGroup>(TaskGroup{&graph, stream.number, graph.tasks.size() - 1});
  void* handle = group.get();
  const std::lock_guard<std::mutex> handles_lock(handles_mutex());
  handles().emplace(handle, std::move(group));
  return handle;
}

void begin_update(Stream& stream, void* handle) {
  const CaptureLock lock;
  const TaskGroup group = group_of(handle);
  Graph& graph = *group.graph;
  if (graph.state.load() != Graph::State::Ready)
    throw Error(ACL_ERROR_RT_MODEL_CAPTURED, "the graph is still being captured; a group is updated after that");
  if (stream.capture.load())
    throw Error(ACL_ERROR_RT_STREAM_CAPTURED, format("stream %u is in capture or updates already", stream.number));
  if (stream.number == group.stream)
    throw Error(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                format("the group was captured on stream %u; another stream updates it", stream.number));
  if (stream.device != graph.device)
    throw Error(ACL_ERROR_RT_STREAM_CONTEXT,
                format("the graph was captured on device %d, the stream belongs to device %d", graph.device->id,
                       stream.device->id));
  if (graph.group_stream)
    throw Error(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                format("stream %u is updating a group of the graph", graph.group_stream->number));
  graph.group = &make_part(*graph.device);
  graph.group_index = group.index;
  graph.group_stream = &stream;
  detail::captures.fetch_add(1);
  stream.capture.store(&graph);
}

void end_update(Stream& stream) {
  const CaptureLock lock;
  Graph* graph = stream.capture.load();
  if (!graph || graph->state.load() != Graph::State::Ready || graph->group_stream != &stream)
    throw Error(ACL_ERROR_RT_STREAM_NOT_CAPTURED, format("stream %u updates no task group", stream.number));
  stream.capture.store(nullptr);
  graph->group_stream = nullptr;
  detail::captures.fetch_sub(1);
  Graph* part = std::exchange(graph->group, nullptr);
  {
    const std::lock_guard<std::mutex> groups(graph->groups);
    std::swap(part, graph->tasks[graph->group_index].graph.graph);
  }
  release_graph(part);
}

void forget_groups(const Graph& graph) {
  const std::lock_guard<std::mutex> lock(handles_mutex());
  std::erase_if(handles(), [&](const auto& entry) { return entry.second->graph == &graph; });
}

}  // namespace acl_sim
