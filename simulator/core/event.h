#pragma once
// Events: marks in streams, with the time at which the stream passed them.
//
// Note [Generations]
// An event may be recorded again while earlier records are still queued. Each record takes the next generation; a
// stream that waits for the event waits for the generation that was recorded when it was told to wait.
//
// Note [External events]
// An event that was made with ACL_EVENT_EXTERNAL is a flag between graphs and other work: to record, to wait and to
// reset it are tasks, in a stream as in a graph. A record sets it, whoever waits goes on once it is set, even if the
// record comes later than the wait, and a reset takes the flag away. Its generations are 0 and 1.

#include <acl/acl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Graph;
struct Stream;

struct Event {
  std::atomic<bool> alive{false};
  std::atomic<uint64_t> recorded{0};  // 0: never
  std::atomic<uint64_t> completed{0};
  std::atomic<int64_t> time_ns{0};       // of the last completed record
  std::atomic<int> references{0};        // the caller and queued tasks
  std::atomic<Stream*> stream{nullptr};  // of the last record, and the number of its task there
  std::atomic<uint64_t> task_id{0};
  std::atomic<Graph*> capture{nullptr};  // it was last recorded in, see Note [Capture]
  uint32_t stream_lives = 0;             // tells whether `stream` is still the one that recorded
  uint32_t flags = 0;
  std::atomic<aclError> failure{ACL_SUCCESS};  // see Note [Failed collectives] in external.h
  std::string failure_text;                    // under the mutex
  std::mutex mutex;
  std::condition_variable passed;

  bool complete() const {
    return completed.load(std::memory_order_acquire) >= recorded.load(std::memory_order_acquire);
  }
  bool complete(uint64_t generation) const { return completed.load(std::memory_order_acquire) >= generation; }
  void complete_record(uint64_t generation);
  bool is_external() const { return (flags & 0x20U) != 0; }  // ACL_EVENT_EXTERNAL
  void take_back();
};

Event* create_event(uint32_t flags);
Event& event_of(aclrtEvent handle);
void release_event(Event* event);

}  // namespace acl_sim
