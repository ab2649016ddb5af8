#pragma once
// Streams: ordered queues of tasks, independent of each other.
//
// Note [Who runs a task]
// A stream has one token: the right to run its tasks. One thread at a time has it, and runs the tasks in the order in
// which they were submitted, so the order does not depend on which thread it is. Three kinds of threads may take it:
// the stream's worker; a thread that submits a tiny task to an idle stream; a thread that waits for the stream, as long
// as the next task is tiny, or a collective if the wait has no end of its own. Whoever gives the token back while tasks
// are left wakes the worker, so every task is run.
//
// Note [The word]
// The atomic `word_` is two things in one number: whether a thread has the token (kRunning), and how many tasks were
// submitted. `completed_` is how many have run; only the thread that has the token writes it. The stream is idle when
// both counts agree. To submit a task is one compare-and-exchange of `word_`: the new count is the task's number. On an
// idle stream the same exchange may take the token, and the caller runs the task; otherwise the task is written into
// the ring, at its number. To give the token back is a compare-and-exchange, too, which fails while a submitted task
// has not run. So no lock is needed to run or submit; `mutex_` is for threads that sleep.
//
// Note [Streaks]
// If a thread waits for each result, it is fastest to run tiny tasks itself, at once. If it submits many of them
// without waiting (a streak), it is faster that a worker runs them at the same time. So tiny tasks run at once, up to
// kStreak of them in a row; then the worker gets the next ones, keeps the token, and looks for more for a while before
// it sleeps. The streak ends when a thread waits for the stream, and when the worker falls asleep, because to wake it
// costs more than a tiny task. On a busy machine (Note [Busy machines]) there are no streaks, and larger tasks run at
// once, too.

#include <acl/acl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/task.h"
#include "core/task_ring.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class Device;
struct Context;
struct Event;
struct Graph;

struct Stream {
  std::atomic<bool> alive{false};  // a caller may use it
  Device* device = nullptr;
  Context* context = nullptr;
  uint32_t number = 0;  // for log lines and exception information
  uint32_t flags = 0;
  int32_t priority = 0;
  std::atomic<uint32_t> lives{0};        // counts reuses of this handle's memory
  std::atomic<Graph*> capture{nullptr};  // takes its tasks, see Note [Capture]
  std::atomic<bool> overflow_check{false};
  std::atomic<bool> saturates{false};  // see Note [Saturation] in exec/watching/saturation.h
  Report* report = nullptr;            // who runs this stream's host callbacks

  // Gives the task an id and runs or queues it.
  void submit(Task& task);
  // Waits until the task `id` is done, or for timeout_ms (negative: as long as it takes); false if time ran out.
  bool wait(uint64_t id, int64_t timeout_ms);
  uint64_t last_submitted() const { return word_.load(std::memory_order_acquire) >> kShift; }
  bool idle() const { return completed_.load(std::memory_order_acquire) >= last_submitted(); }
  // Some thread runs a task of it now.
  bool running() const { return word_.load(std::memory_order_seq_cst) & kRunning; }

  bool has_error() const { return error_.load(std::memory_order_relaxed) != ACL_SUCCESS; }
  // The first error since the last call, cleared; its text goes with it.
  aclError take_error(std::string* text);
  void set_error(aclError code, const std::string& text, const Task* task);
  void set_stop_on_failure(bool stop);
  // See Note [Failed collectives] in external.h.
  void pass_failure_to(Event& event);
  void take_failure_from(Event& event);

  void prepare(Device* on, Context* in, uint32_t with_flags, int32_t with_priority);
  // Waits for what is queued (or drops it), and returns the handle to the pool.
  void destroy(bool drop);
  // Drops queued tasks and interrupts one that hangs.
  void abort();
  bool aborting() const { return abort_.load(std::memory_order_relaxed); }

  bool has_run(uint64_t id) const { return completed_.load(std::memory_order_acquire) >= id; }
  // Operators that ran at once on the thread that submitted them, in the stream's whole life.
  uint64_t direct_ops() const { return direct_ops_.load(std::memory_order_relaxed); }
  // How long a worker has been at the task that it runs now, in nanoseconds.
  uint64_t busy_for() const;

 private:
  static constexpr uint64_t kRunning = 1;
  static constexpr int kShift = 1;

  void execute(Task& task);
  void execute_recorded(Task& task);
  void perform(Task& task);
  void execute_timed(Task& task);
  void run_graph(const Task& launch);
  static void call_team();  // of the host's threads, for what is not tiny
  void complete(uint64_t id);
  void tell_waiters();
  bool caller_may_run(const Task& task) const;
  bool hand_over(const Task& task);
  void enqueue(Task& task);
  void wait_for_room();
  // The token. take_token() fails while somebody has it or nothing is left to run; let_go() fails while something is.
  bool take_token();
  bool let_go();
  void drop_token();
  // Runs tasks from the head; needs the token. The first stops at a task that only a worker may run, and at `last`.
  void run_tiny(uint64_t last, bool waits_anyway);
  void run_all();
  bool look_out();
  void work();
  void sleep();
  void start_worker();
  void call_worker();

  // What submitting threads write, ...
  alignas(64) std::atomic<uint64_t> word_{0};
  std::atomic<uint32_t> streak_{0};
  std::atomic<uint64_t> known_completed_{0};  // at least that far; spares a look at the worker's cache line
  // ... what the token's holder writes, ...
  alignas(64) std::atomic<uint64_t> completed_{0};
  std::atomic<uint64_t> direct_ops_{0};
  std::atomic<int64_t> busy_since_{0};
  // ... and what changes seldom.
  alignas(64) std::atomic<aclError> error_{ACL_SUCCESS};
  std::atomic<bool> stop_on_failure_{false};
  std::atomic<bool> passes_failure_{false};
  std::atomic<bool> abort_{false};
  std::atomic<bool> worker_sleeps_{true};
  std::atomic<int> waiters_{0};
  TaskRing ring_;
  std::mutex mutex_;
  std::condition_variable work_, done_;
  bool worker_started_ = false;
  std::string error_text_;
};

// The stream of a handle; nullptr means the current context's default stream. Throws Error for a handle that is none.
Stream& stream_of(aclrtStream handle);
// The same for work that is to be submitted: the stream must belong to the calling thread's device.
Stream& submit_stream_of(aclrtStream handle);
Stream& create_stream(Context& context, uint32_t flags, int32_t priority);
// Waits for every stream of the device; the first error found, reported for this thread.
aclError synchronize_device(Device& device, int64_t timeout_ms);
// What is queued anywhere, and whether all of that has run.
struct StreamMark {
  const Stream* stream;
  uint64_t id;
};
std::vector<StreamMark> mark_streams();
bool have_passed(const std::vector<StreamMark>& marks);
// Sum of direct_ops() over the device's streams, those that are gone included.
uint64_t direct_ops_of(const Device& device);
// What the device's workers have spent on operators and copies, those that run now included.
uint64_t busy_ns_of(const Device& device);
aclError synchronize(Stream& stream, int64_t timeout_ms);
// Waits, a bounded time, until nothing queued can touch memory of the device any more. Errors stay for who asks.
void drain_device(const Device& device);
// Calls abort() on and then destroys every stream of a context (or of every context of the device, for nullptr).
void destroy_streams(Device& device, Context* context);
void abort_device(Device& device);

// Frees what a task owns that will not run.
void drop_task(Task& task);
// Gives a copy its own copy of the host memory that it reads.
void stage_copy(CopyWork& copy);
bool is_default_stream(const Stream& stream);

// Called by the exit handler: workers finish what they run and park.
void park_workers();

// How long a hung operator may take before it fails, and a stream may wait for an event; seconds, 0: no limit.
void set_op_execute_timeout_ms(uint64_t ms);
void set_op_wait_timeout(uint32_t seconds);
int64_t op_execute_timeout_ms();

void set_exception_callback(aclrtExceptionInfoCallback callback);

// Copies between host and alias addresses on the calling thread, minding how the device stores what is there.
void copy_now(void* to, const void* from, size_t bytes);

}  // namespace acl_sim
