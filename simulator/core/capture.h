#pragma once
// Graphs: tasks of a stream that are recorded instead of run, and run together later, as often as wanted.
//
// Note [Capture]
// A stream in capture (`Stream::capture` is set) hands its tasks to a graph. Other streams come in as on a card: an
// event that is recorded in a capturing stream belongs to the graph, and a stream that waits for it captures from then
// on. At the end everything that was recorded must have come back to the stream on which the capture began, so each
// stream counts its steps, and a record of an event notes what the recording stream knows of all others (a vector
// clock). The order in which tasks were recorded fits all these waits, so a replay runs them one after another in that
// order, as one task of the stream it is given to.
// A task that runs consumes what it owns. A recorded one lends it: each run gets a copy of the task, and the graph
// frees what is lent at its end. Compiled operators of a graph are not evicted (CompiledOp::pins). Whatever has no
// answer while a stream is in capture (waiting for it, asking whether it is done) is refused with ACL's code and makes
// the capture invalid: it records nothing more, and its end says why. All of the bookkeeping is under one lock, which
// is taken only while some stream is in capture.
//
// Note [Task groups]
// A recorded task keeps what the host decided about it: numbers, lengths, shapes. So that these can change, a part of a
// capture may be a group: a graph of its own, which stands among the tasks as one. An update captures other tasks on
// another stream, as a graph that takes the place of the group's. A replay takes what stands there when it comes to
// the group, so it may have begun before the update, if an external event in front of the group holds it up.

#include <acl/acl.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/task.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class Device;
struct Event;
struct Stream;

// How far each stream of a capture is known to have come.
using StreamClock = std::map<const Stream*, uint64_t>;

// What a handle of type aclmdlRI stands for.
struct Graph {
  enum class State : uint8_t { Capturing, Invalid, Ready };

  std::atomic<bool> alive{false};  // a caller may use it
  std::atomic<int> references{0};  // the caller, the capture, queued replays, graphs that contain it
  std::atomic<State> state{State::Ready};
  Device* device = nullptr;
  uint32_t number = 0;
  std::vector<Task> tasks;             // unchanged once it is ready
  std::vector<uint32_t> task_streams;  // the number of the stream that each was recorded on
  std::mutex running;                  // a graph runs once at a time
  std::mutex groups;                   // over the tasks that stand for groups, while a graph is ready

  // While it is captured, under the lock of all captures:
  aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  Stream* origin = nullptr;
  std::map<Stream*, StreamClock> streams;
  std::map<Event*, StreamClock> events;
  aclError invalid_code = ACL_SUCCESS;
  std::string invalid_reason;
  Stream* group_stream = nullptr;  // on which a group has begun or is updated,
  Graph* group = nullptr;          // and what takes its tasks
  size_t group_index = 0;          // of the task that an update is for
};

namespace detail {
extern std::atomic<int> captures;  // under way
void refuse_wait(Stream& stream, const char* what);
void refuse_wait(Event& event, const char* what);
void refuse_wait(Device& device, const char* what);
void refuse_unsafe(const char* what);
}  // namespace detail

inline bool capturing() { return __builtin_expect(detail::captures.load(std::memory_order_relaxed) != 0, 0); }

void begin_capture(Stream& stream, aclmdlRICaptureMode mode);
// The graph of the stream's capture, for its caller. Throws Error if the capture was invalid or is not whole; it is
// over in any case.
Graph& end_capture(Stream& stream);
aclmdlRICaptureStatus capture_status(const Stream& stream, Graph** graph);
// Sets the calling thread's mode and returns the one before.
aclmdlRICaptureMode exchange_capture_mode(aclmdlRICaptureMode mode);
// For a stream that ends: its capture is over, and nothing remains of it.
void abandon_capture(Stream& stream);

// Puts the task into the graph of the stream's capture; throws Error, and frees what the task owns, if it cannot.
void capture_task(Stream& stream, Task& task);
void capture_record(Event& event, Stream& stream);
void capture_wait(Stream& stream, Event& event);
// Note [External events]
bool submit_external(TaskKind kind, Stream& stream, Event& event);
// The event is recorded anew outside of any capture, or is gone.
void leave_capture(Event& event);

// Refuse, while it is captured, to wait for something or to ask about it. `what` is the function.
template <class T>
inline void check_no_capture(T& of, const char* what) {
  if (capturing()) detail::refuse_wait(of, what);
}
// Refuses what CANN calls unsafe, as the modes of captures under way and of this thread have it.
inline void check_safe_in_capture(const char* what) {
  if (capturing()) detail::refuse_unsafe(what);
}

// Note [Task groups]. The handle is valid as long as the graph.
void begin_group(Stream& stream);
void* end_group(Stream& stream);
void begin_update(Stream& stream, void* group);
void end_update(Stream& stream);
// The groups of a graph that is no more.
void forget_groups(const Graph& graph);

// The graph of a handle. Throws Error for a handle that is none.
Graph& graph_of(aclmdlRI handle);
void execute_graph(Graph& graph, Stream& stream);
void destroy_graph(Graph& graph);
void release_graph(Graph* graph);
// One entry for each recorded task, as trace viewers read them.
std::string describe_graph(const Graph& graph);

}  // namespace acl_sim
