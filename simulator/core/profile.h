#pragma once
// What the device measures of its own work while somebody listens.
//
// Note [Device profiler]
// A session keeps records of tasks, of calls of the ABI and of the host's marks in a ring of its own, from which
// whoever started it reads, at the end or all along. Sessions are few and known by a bit of `listeners`: while that is
// zero, a task and a call cost one look at it each. Rings are bounded; what finds no room is counted and dropped, so a
// profile never stops the device. Records are written by whoever runs a task, without a lock. Descriptions of
// operators are kept once for the process, since a compiled operator may be gone before its records are read.

#include <acl/acl.h>
#include <acl/acl_simulator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/task.h"
#include "core/thread_local.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Stream;

namespace detail {
extern std::atomic<uint32_t> listeners;
extern SIM_THREAD_LOCAL uint64_t correlation;
extern SIM_THREAD_LOCAL uint64_t last_task;  // number of the last one that this thread submitted
}  // namespace detail

inline bool profiling() { return __builtin_expect(detail::listeners.load(std::memory_order_relaxed) != 0, 0); }

// Nanoseconds of the monotonic clock; records in rings are in it, those that are read in that of the epoch.
int64_t profile_clock();

// Gives a task its number and notes who submits it; only while profiling().
void note_submission(Task& task);
// Keeps a record of a task that has run. What it was is described before: running a task releases parts of it.
class TaskRecord {
 public:
  TaskRecord(const Stream& stream, const Task& task);
  ~TaskRecord();
  TaskRecord(const TaskRecord&) = delete;
  TaskRecord& operator=(const TaskRecord&) = delete;

 private:
  const Stream& stream_;
  aclsimRecord record_{};
  bool had_error_;
};

// A call of the ABI, on the thread that calls. `name` is a literal.
class ApiRecord {
 public:
  explicit ApiRecord(const char* name) : name_(profiling() ? name : nullptr) {
    if (__builtin_expect(name_ != nullptr, 0)) begin();
  }
  ~ApiRecord() {
    if (__builtin_expect(name_ != nullptr, 0)) end();
  }
  ApiRecord(const ApiRecord&) = delete;
  ApiRecord& operator=(const ApiRecord&) = delete;

 private:
  void begin();
  void end() const;

  const char* name_;
  int64_t started_ = 0;
  uint64_t last_before_ = 0;
};

// A range or mark of the host's, for every session.
void record_mark(aclsimRecordKind kind, uint64_t id, int64_t started, int64_t ended, const std::string& text);

// The number of a text, the same for the same text; 0 for the empty one.
uint32_t text_number(const std::string& text);
// Valid as long as the process; "" for a number that was never given.
const char* text_of(uint32_t number);
uint32_t last_text();

// Throws Error if there are too many sessions, or no memory.
uint32_t start_session();
// Later tasks leave no records in it; those that are there can be read until it is released.
void stop_session(uint32_t session);
bool session_has_ended(uint32_t session);
void release_session(uint32_t session);
// Takes up to `room` records out; returns how many. Called by one thread at a time.
size_t read_session(uint32_t session, aclsimRecord* records, size_t room, uint64_t* dropped);

}  // namespace acl_sim
