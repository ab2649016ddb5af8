// Recording: which streams are in capture, what is refused meanwhile, and how a capture ends. See Note [Capture].

#include "core/capture.h"

#include "core/capture_lock.h"
#include "core/device.h"
#include "core/error.h"
#include "core/event.h"
#include "core/executor.h"
#include "core/graph_pool.h"
#include "core/stream.h"
#include "core/thread_local.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace acl_sim {

namespace detail {
std::atomic<int> captures{0};
}  // namespace detail

std::mutex& captures_mutex() {
  static auto* value = new std::mutex;
  return *value;
}

namespace {

using Lock = std::lock_guard<std::mutex>;

// Captures under way, under the lock.
std::vector<Graph*>& graphs_in_capture() {
  static auto* value = new std::vector<Graph*>;
  return *value;
}

SIM_THREAD_LOCAL aclmdlRICaptureMode thread_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

// The functions below need the lock.

void invalidate(Graph& graph, aclError code, const std::string& reason) {
  if (graph.state.load() != Graph::State::Capturing) return;
  graph.invalid_code = code;
  graph.invalid_reason = reason;
  graph.state.store(Graph::State::Invalid);
}

[[noreturn]] void invalidate_and_throw(Graph& graph, aclError code, const std::string& reason) {
  invalidate(graph, code, reason);
  throw Error(code, reason);
}

[[noreturn]] void throw_invalidated(const Graph& graph) {
  throw Error(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "the capture is invalid: " + graph.invalid_reason);
}

void require_valid(const Graph& graph) {
  if (graph.state.load() == Graph::State::Invalid) throw_invalidated(graph);
}

// Streams and events are as if nothing had been recorded.
void finish(Graph& graph) {
  for (auto& [stream, clock] : graph.streams) stream->capture.store(nullptr);
  for (auto& [event, clock] : graph.events) {
    if (event->capture.load() == &graph) {
      event->capture.store(nullptr);
      event->completed.store(0);
      event->recorded.store(0);
    }
    release_event(event);
  }
  graph.streams.clear();
  graph.events.clear();
  std::erase(graphs_in_capture(), &graph);
  detail::captures.fetch_sub(1);
}

void merge(StreamClock& into, const StreamClock& from) {
  for (const auto& [stream, steps] : from) into[stream] = std::max(into[stream], steps);
}

bool in_update(const Graph& graph, const Stream& stream) {
  return graph.state.load() == Graph::State::Ready && graph.group_stream == &stream;
}

void refuse_events_in_update(const Graph& graph, const Stream& stream) {
  if (in_update(graph, stream))
    throw Error(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                format("stream %u updates a task group, which takes no events of other streams", stream.number));
}

// The stream runs its tasks again.
void leave_update(Stream& stream, Graph& graph) {
  stream.capture.store(nullptr);
  graph.group_stream = nullptr;
  detail::captures.fetch_sub(1);
}

// The first stream whose work does not come back to the origin.
const Stream* unjoined(const Graph& graph) {
  const StreamClock& known = graph.streams.at(graph.origin);
  for (const auto& [stream, clock] : graph.streams) {
    const auto own = clock.find(stream), seen = known.find(stream);
    if (own != clock.end() && (seen == known.end() || seen->second < own->second)) return stream;
  }
  return nullptr;
}

}  // namespace

void begin_capture(Stream& stream, aclmdlRICaptureMode mode) {
  const Lock lock(captures_mutex());
  if (stream.capture.load()) throw Error(ACL_ERROR_RT_STREAM_CAPTURED, "the stream is in capture already");
  Graph& graph = make_graph(*stream.device);
  graph.mode = mode;
  graph.thread = std::this_thread::get_id();
  graph.origin = &stream;
  graph.streams[&stream] = {};
  graph.state.store(Graph::State::Capturing);
  graphs_in_capture().push_back(&graph);
  detail::captures.fetch_add(1);
  stream.capture.store(&graph);
}

Graph& end_capture(Stream& stream) {
  Lock lock(captures_mutex());
  Graph* graph = stream.capture.load();
  if (!graph) throw Error(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream is not in capture");
  if (graph->origin != &stream)
    invalidate_and_throw(
        *graph, ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED,
        format("the capture began on stream %u, not on stream %u", graph->origin->number, stream.number));
  if (const Stream* left = graph->state.load() == Graph::State::Capturing ? unjoined(*graph) : nullptr)
    invalidate(
        *graph, ACL_ERROR_RT_STREAM_UNJOINED,
        format("what was captured on stream %u has not been joined: record an event behind it, and let stream %u, "
               "on which the capture began, wait for that",
               left->number, stream.number));
  if (graph->group_stream)
    invalidate(*graph, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
               format("a task group on stream %u has not ended", graph->group_stream->number));
  graph->group_stream = nullptr;
  finish(*graph);
  if (graph->state.load() == Graph::State::Capturing) {
    graph->state.store(Graph::State::Ready);
    return *graph;
  }
  const aclError code = graph->invalid_code == ACL_ERROR_RT_STREAM_UNJOINED ? ACL_ERROR_RT_STREAM_UNJOINED
                                                                            : ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED;
  const std::string reason = "nothing was captured: " + graph->invalid_reason;
  destroy_graph(*graph);
  throw Error(code, reason);
}

void abandon_capture(Stream& stream) {
  const Lock lock(captures_mutex());
  Graph* graph = stream.capture.load();
  if (!graph) return;
  if (in_update(*graph, stream)) {
    leave_update(stream, *graph);
    destroy_graph(*std::exchange(graph->group, nullptr));
    return;
  }
  invalidate(*graph, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, format("stream %u was destroyed", stream.number));
  if (graph->origin == &stream) {
    finish(*graph);
    destroy_graph(*graph);
  } else {
    graph->streams.erase(&stream);
    stream.capture.store(nullptr);
  }
}

aclmdlRICaptureStatus capture_status(const Stream& stream, Graph** graph) {
  Graph* found = stream.capture.load(std::memory_order_acquire);
  if (graph) *graph = found;
  if (!found) return ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  // A graph that is ready has the stream for an update.
  return found->state.load() == Graph::State::Invalid ? ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED
                                                      : ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
}

aclmdlRICaptureMode exchange_capture_mode(aclmdlRICaptureMode mode) { return std::exchange(thread_mode, mode); }

// ---- tasks and events

void capture_task(Stream& stream, Task& task) {
  const Lock lock(captures_mutex());
  Graph* graph = stream.capture.load();
  try {
    if (!graph) throw Error(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the capture ended while work was put on its stream");
    require_valid(*graph);
    if (task.kind == TaskKind::External)
      invalidate_and_throw(*graph, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                           format("%s cannot be captured into a graph", task.external.name));
    // The copy of host memory that a queued task would own.
    if (task.kind == TaskKind::Copy && task.copy.pageable) stage_copy(task.copy);
    Graph& into = graph->group_stream == &stream ? *graph->group : *graph;
    into.tasks.push_back(task);
    into.task_streams.push_back(stream.number);
    if (task.kind == TaskKind::Op) lend_op(into.tasks.back());
  } catch (...) {
    if (task.kind != TaskKind::External) drop_task(task);  // another library keeps what was not launched
    throw;
  }
  if (!in_update(*graph, stream)) task.id = ++graph->streams[&stream][&stream];
}

bool submit_external(TaskKind kind, Stream& stream, Event& event) {
  if (!event.is_external()) return false;
  Task task;
  task.kind = kind;
  task.tiny = task.modest = kind != TaskKind::Wait;
  task.narrow = task.brief = false;
  task.event = {&event, 1};
  event.references.fetch_add(1, std::memory_order_relaxed);
  stream.submit(task);
  return true;
}

void capture_record(Event& event, Stream& stream) {
  const Lock lock(captures_mutex());
  Graph* graph = stream.capture.load();
  if (!graph) throw Error(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the capture ended while an event was recorded");
  refuse_events_in_update(*graph, stream);
  require_valid(*graph);
  if (Graph* other = event.capture.load(); other && other != graph) {
    const bool gone =
        std::find(graphs_in_capture().begin(), graphs_in_capture().end(), other) == graphs_in_capture().end();
    if (!gone)
      invalidate_and_throw(*graph, ACL_ERROR_STREAM_CAPTURE_CONFLICT, "the event belongs to another capture under way");
  }
  if (graph->events.find(&event) == graph->events.end()) event.references.fetch_add(1, std::memory_order_relaxed);
  StreamClock& clock = graph->streams[&stream];
  ++clock[&stream];
  graph->events[&event] = clock;
  event.capture.store(graph);
}

void capture_wait(Stream& stream, Event& event) {
  const Lock lock(captures_mutex());
  Graph* of_event = event.capture.load();
  Graph* of_stream = stream.capture.load();
  if (of_stream) refuse_events_in_update(*of_stream, stream);
  if (!of_event) {
    if (!of_stream || event.recorded.load() == 0) return;  // an event that was never recorded is no mark
    require_valid(*of_stream);
    invalidate_and_throw(*of_stream, ACL_ERROR_RT_CAPTURE_DEPENDENCY,
                         "a stream in capture waits for an event that was recorded outside of it: let the stream wait "
                         "before the capture begins");
  }
  require_valid(*of_event);
  if (of_stream && of_stream != of_event) {
    invalidate(*of_event, ACL_ERROR_STREAM_CAPTURE_CONFLICT, "a stream of another capture waits for an event of it");
    invalidate_and_throw(*of_stream, ACL_ERROR_STREAM_CAPTURE_CONFLICT,
                         "a stream in capture waits for an event of another capture");
  }
  if (!of_stream) {
    if (is_default_stream(stream))
      invalidate_and_throw(
          *of_event, ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
          "a default stream waits for an event of a capture; it cannot be captured, use another stream");
    if (stream.device != of_event->device)
      invalidate_and_throw(*of_event, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                           format("a stream of device %d waits for an event of a capture on device %d; a graph has one "
                                  "device",
                                  stream.device->id, of_event->device->id));
    stream.capture.store(of_event);
  }
  merge(of_event->streams[&stream], of_event->events.at(&event));
}

void leave_capture(Event& event) {
  const Lock lock(captures_mutex());
  Graph* graph = event.capture.exchange(nullptr);
  if (!graph || graph->events.erase(&event) == 0) return;
  release_event(&event);
}

// ---- what is refused

void detail::refuse_wait(Stream& stream, const char* what) {
  const Lock lock(captures_mutex());
  Graph* graph = stream.capture.load();
  if (!graph) return;
  require_valid(*graph);
  invalidate_and_throw(
      *graph, ACL_ERROR_RT_STREAM_CAPTURED,
      format("%s: stream %u is in capture, its work is recorded and does not run", what, stream.number));
}

void detail::refuse_wait(Event& event, const char* what) {
  const Lock lock(captures_mutex());
  Graph* graph = event.capture.load();
  if (!graph) return;
  require_valid(*graph);
  invalidate_and_throw(*graph, ACL_ERROR_RT_EVENT_CAPTURED,
                       format("%s: the event was recorded in a capture, in which no stream passes it", what));
}

void detail::refuse_wait(Device& device, const char* what) {
  const Lock lock(captures_mutex());
  for (Graph* graph : graphs_in_capture()) {
    if (graph->device != &device) continue;
    require_valid(*graph);
    invalidate_and_throw(*graph, ACL_ERROR_RT_STREAM_CAPTURED,
                         format("%s: stream %u of device %d is in capture, its work is recorded and does not run", what,
                                graph->origin->number, device.id));
  }
}

void detail::refuse_unsafe(const char* what) {
  if (thread_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return;
  const Lock lock(captures_mutex());
  for (const Graph* graph : graphs_in_capture()) {
    const bool refuses =
        graph->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL ||
        (graph->mode == ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL && graph->thread == std::this_thread::get_id());
    if (refuses)
      throw Error(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
                  format("%s: not while stream %u of device %d is in capture, unless the capture or this thread is in "
                         "relaxed mode",
                         what, graph->origin->number, graph->device->id));
  }
}

}  // namespace acl_sim
