// Graphs that are ready: handles, replays, descriptions. See Note [Capture].

#include "core/capture.h"
#include "core/device.h"
#include "core/error.h"
#include "core/event.h"
#include "core/executor.h"
#include "core/graph_pool.h"
#include "core/handles.h"
#include "core/process.h"
#include "core/profile.h"
#include "core/stream.h"

#include <utility>

namespace acl_sim {
namespace {

using GraphPool = HandlePool<Graph, size_t{1} << 16>;

GraphPool& pool() {
  static auto* value = new GraphPool;
  return *value;
}

std::atomic<uint32_t> next_number{0};

// The first four fields of describe_op's text are the type, the unit, the inputs; a viewer shows the type.
std::string name_of(const Task& task) {
  switch (task.kind) {
    case TaskKind::Op: {
      uint64_t bytes = 0;
      const std::string text = text_of(describe_op(task, &bytes));
      return text.substr(0, text.find('\t'));
    }
    case TaskKind::Copy:
      return "MEMCPY_ASYNC";
    case TaskKind::Fill:
      return "MEMSET_ASYNC";
    case TaskKind::Callback:
      return "CALLBACK";
    case TaskKind::Record:
      return "EVENT_RECORD";
    case TaskKind::Wait:
      return "EVENT_WAIT";
    case TaskKind::Reset:
      return "EVENT_RESET";
    case TaskKind::Graph:
      return format("MODEL_%u", task.graph.graph->number);
    default:
      return "TASK";
  }
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

Graph& make_graph(Device& device) {
  Graph* graph = pool().take();
  if (!graph) throw Error(ACL_ERROR_RT_NO_MODEL_RESOURCE, "too many graphs");
  graph->device = &device;
  graph->number = next_number.fetch_add(1);
  graph->invalid_code = ACL_SUCCESS;
  graph->invalid_reason.clear();
  graph->references.store(1);
  graph->alive.store(true, std::memory_order_release);
  return *graph;
}

Graph& graph_of(aclmdlRI handle) {
  if (Graph* graph = pool().check(handle)) return *graph;
  throw Error(handle ? ACL_ERROR_RT_INVALID_HANDLE : ACL_ERROR_INVALID_PARAM,
              format("%p is no model instance", handle));
}

void execute_graph(Graph& graph, Stream& stream) {
  if (graph.state.load(std::memory_order_acquire) != Graph::State::Ready)
    throw Error(ACL_ERROR_RT_MODEL_CAPTURED, "the graph is still being captured; call aclmdlRICaptureEnd first");
  if (graph.device != stream.device)
    throw Error(ACL_ERROR_RT_STREAM_CONTEXT,
                format("the graph was captured on device %d, the stream belongs to device %d", graph.device->id,
                       stream.device->id));
  graph.references.fetch_add(1, std::memory_order_relaxed);
  Task task;
  task.kind = TaskKind::Graph;
  task.tiny = task.modest = task.brief = false;
  task.graph = {&graph};
  stream.submit(task);
}

void Stream::run_graph(const Task& launch) {
  Graph& graph = *launch.graph.graph;
  const std::lock_guard<std::mutex> lock(graph.running);
  for (const Task& recorded : graph.tasks) {
    if (exiting() || aborting() || device->lost.load(std::memory_order_relaxed)) break;
    Task task;
    if (recorded.kind == TaskKind::Graph) {
      const std::lock_guard<std::mutex> unchanged(graph.groups);
      task = recorded;
      task.graph.graph->references.fetch_add(1, std::memory_order_relaxed);
    } else {
      task = recorded;
    }
    task.id = launch.id;
    task.number = 0;
    if (profiling()) {
      note_submission(task);
      if (launch.number != 0) {
        task.correlation = launch.correlation;
        task.submitted = launch.submitted;
        task.thread = launch.thread;
      }
    }
    if (task.kind == TaskKind::Op) {
      device->counters.ops_launched.fetch_add(1, std::memory_order_relaxed);
      prepare_replay(task, *device);
    } else if (task.kind == TaskKind::Record || task.kind == TaskKind::Wait || task.kind == TaskKind::Reset) {
      task.event.event->references.fetch_add(1, std::memory_order_relaxed);
    } else if (task.kind == TaskKind::Copy) {
      task.copy.owned = nullptr;  // the graph's
    }
    if (!task.tiny && !(task.kind == TaskKind::Op && task.narrow)) call_team();
    execute(task);
  }
}

void destroy_graph(Graph& graph) {
  graph.alive.store(false, std::memory_order_release);
  release_graph(&graph);
}

void release_graph(Graph* graph) {
  if (graph->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  forget_groups(*graph);
  if (graph->group) destroy_graph(*std::exchange(graph->group, nullptr));  // one that has not ended
  for (Task& task : graph->tasks) {
    if (task.kind == TaskKind::Op) take_back_op(task);
    if (task.kind == TaskKind::Record) task.kind = TaskKind::Reset;  // it lets go of the event and records nothing
    drop_task(task);
  }
  std::vector<Task>().swap(graph->tasks);
  std::vector<uint32_t>().swap(graph->task_streams);
  pool().give(graph);
}

std::string describe_graph(const Graph& graph) {
  std::string text = "[";
  for (size_t i = 0; i < graph.tasks.size(); ++i) {
    text += format(
        "%s\n{\"name\": \"%s\", \"ph\": \"X\", \"ts\": %zu, \"dur\": 1, \"pid\": \"model %u\", "
        "\"tid\": \"stream %u\", \"args\": {\"Model Id\": %u, \"Stream Id\": %u, \"Task Id\": %zu}}",
        i == 0 ? "" : ",", escaped(name_of(graph.tasks[i])).c_str(), i, graph.number, graph.task_streams[i],
        graph.number, graph.task_streams[i], i);
  }
  return text + "\n]\n";
}

}  // namespace acl_sim
