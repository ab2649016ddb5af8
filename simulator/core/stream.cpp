// How a stream takes, keeps and runs its tasks.

#include "core/stream.h"

#include "core/capture.h"
#include "core/clock.h"
#include "core/device.h"
#include "core/error.h"
#include "core/event.h"
#include "core/executor.h"
#include "core/external.h"
#include "core/load.h"
#include "core/log.h"
#include "core/process.h"
#include "core/profile.h"
#include "core/report.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace acl_sim {
namespace {

using Clock = std::chrono::steady_clock;

// Tiny operators that run at once before the next go to the worker, see Note [Streaks].
constexpr uint32_t kStreak = 8;
// Spinning that long before sleeping spares a wake-up (about 50 us) where the next task or result is close. Waiters
// yield while they spin, so that they do not stand in the way of the team they wait for.
constexpr auto kWorkerSpin = std::chrono::microseconds(20);
constexpr auto kWaiterSpin = std::chrono::milliseconds(1);
// How often waits look whether the process ends or the stream is aborted.
constexpr auto kSlice = std::chrono::milliseconds(20);

std::atomic<int> awake_workers{0};  // run tasks, or look out for some
std::atomic<uint32_t> next_number{0};
std::atomic<uint64_t> op_execute_timeout{600'000};  // ms
std::atomic<uint32_t> op_wait_timeout{0};
std::atomic<aclrtExceptionInfoCallback> exception_callback{nullptr};
// What the host's thread that submitted last would use itself: torch.set_num_threads is heard.
std::atomic<int> host_team{1};

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Whether there is a core for one more thread that looks out for work beside its host.
bool core_for_worker(bool awake_already) {
  static const int cores = [] {
    cpu_set_t own;
    return ::sched_getaffinity(0, sizeof(own), &own) == 0 ? CPU_COUNT(&own) : 1;
  }();
  return awake_workers.load(std::memory_order_relaxed) - (awake_already ? 1 : 0) < cores - 1;
}

template <class Done>
bool spin(Clock::duration most, bool yield, Done&& done) {
  const auto end = Clock::now() + most;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      relax();
    }
    if (yield) ::sched_yield();
  } while (Clock::now() < end);
  return done();
}

void run_copy(CopyWork& copy) {
  copy_now(copy.to, copy.from, copy.bytes);
  give_scratch(copy.owned);
}

}  // namespace

void drop_task(Task& task) {
  switch (task.kind) {
    case TaskKind::Op:
      drop_op(task);
      break;
    case TaskKind::Copy:
    case TaskKind::Fill:
      give_scratch(task.copy.owned);
      break;
    case TaskKind::Record:
      task.event.event->complete_record(task.event.generation);
      release_event(task.event.event);
      break;
    case TaskKind::Wait:
    case TaskKind::Reset:
      release_event(task.event.event);
      break;
    case TaskKind::Callback:
      break;
    case TaskKind::External:
      drop_external(task.external);
      break;
    case TaskKind::Graph:
      release_graph(task.graph.graph);
      break;
  }
}

// Here, and not by a look at the stream before: an idle stream may have stopped being one by the time of submission.
void stage_copy(CopyWork& copy) {
  copy.owned = take_scratch(copy.bytes);
  std::memcpy(copy.owned, copy.from, copy.bytes);
  copy.from = copy.owned;
}

// ---- submitting

bool Stream::caller_may_run(const Task& task) const {
  return task.tiny || (task.modest && machine_is_busy()) ||
         (task.kind == TaskKind::Wait && task.event.event->complete(task.event.generation)) ||
         (task.kind == TaskKind::External && task.external.ready && task.external.ready(task.external.data));
}

// Note [Streaks]
bool Stream::hand_over(const Task& task) {
  if (task.kind != TaskKind::Op || task.brief) return false;
  const uint32_t streak = streak_.load(std::memory_order_relaxed);
  if (streak >= kStreak) return core_for_worker(!worker_sleeps_.load(std::memory_order_relaxed)) && !machine_is_busy();
  streak_.store(streak + 1, std::memory_order_relaxed);
  return false;
}

void Stream::submit(Task& task) {
  if (__builtin_expect(capture.load(std::memory_order_relaxed) != nullptr, 0)) return capture_task(*this, task);
  task.number = 0;
  if (profiling()) note_submission(task);
  uint64_t word = word_.load(std::memory_order_relaxed);
  if (!(word & kRunning) && completed_.load(std::memory_order_acquire) == word >> kShift && caller_may_run(task) &&
      !hand_over(task)) {
    const uint64_t next = word + (uint64_t{1} << kShift);
    if (word_.compare_exchange_strong(word, next | kRunning, std::memory_order_acq_rel)) {
      task.id = next >> kShift;
      if (__builtin_expect(exiting(), 0)) {
        drop_task(task);
      } else {
        if (task.kind == TaskKind::Op)
          direct_ops_.store(direct_ops_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        execute(task);
      }
      completed_.store(task.id, std::memory_order_release);
      drop_token();
#if !defined(__x86_64__)
      // Between the store above and the look at the waiters; on x86 giving back the token is a barrier.
      std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
      tell_waiters();
      return;
    }
  }
  enqueue(task);
}

void Stream::enqueue(Task& task) {
  if (exiting()) {
    drop_task(task);
    return;
  }
  ring_.make();
  if (task.kind == TaskKind::Op) device->counters.ops_launched.fetch_add(1, std::memory_order_relaxed);
  if (task.kind == TaskKind::Copy && task.copy.pageable) stage_copy(task.copy);
  if (!task.tiny) host_team.store(omp_get_max_threads(), std::memory_order_relaxed);
  uint64_t word = word_.load(std::memory_order_relaxed), next = 0;
  do {
    if ((word >> kShift) - known_completed_.load(std::memory_order_acquire) >= TaskRing::kSize - 1) {
      wait_for_room();
      word = word_.load(std::memory_order_relaxed);
    }
    next = word + (uint64_t{1} << kShift);
  } while (!word_.compare_exchange_weak(word, next, std::memory_order_seq_cst));
  task.id = next >> kShift;
  ring_.put(task);
  // Who has the token will see the new number when giving it back.
  if (!(next & kRunning)) call_worker();
}

void Stream::wait_for_room() {
  const uint64_t last = word_.load(std::memory_order_relaxed) >> kShift;
  uint64_t done = completed_.load(std::memory_order_acquire);
  if (last - done >= TaskRing::kSize - 1) {
    std::unique_lock<std::mutex> lock(mutex_);
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    while ((done = completed_.load(std::memory_order_seq_cst)) + TaskRing::kSize / 2 < last && !exiting())
      done_.wait_for(lock, kSlice);
    waiters_.fetch_sub(1);
  }
  known_completed_.store(done, std::memory_order_release);
}

// ---- the token

bool Stream::take_token() {
  uint64_t word = word_.load(std::memory_order_seq_cst);
  while (!(word & kRunning) && completed_.load(std::memory_order_acquire) != word >> kShift) {
    if (word_.compare_exchange_weak(word, word | kRunning, std::memory_order_seq_cst)) return true;
  }
  return false;
}

bool Stream::let_go() {
  const uint64_t drained = completed_.load(std::memory_order_relaxed) << kShift;
  uint64_t word = drained | kRunning;
  return word_.compare_exchange_strong(word, drained, std::memory_order_seq_cst);
}

void Stream::drop_token() {
  if (let_go()) return;
  word_.fetch_and(~kRunning, std::memory_order_seq_cst);
  call_worker();
}

// ---- running

void Stream::complete(uint64_t id) {
  completed_.store(id, std::memory_order_seq_cst);
  tell_waiters();
}

inline void Stream::tell_waiters() {
  if (__builtin_expect(waiters_.load(std::memory_order_seq_cst) > 0, 0)) {
    // A waiter between its last look and its sleep holds the mutex.
    {
      std::lock_guard<std::mutex> lock(mutex_);
    }
    done_.notify_all();
  }
}

void Stream::execute(Task& task) {
  const bool skip =
      device->lost.load(std::memory_order_relaxed) || abort_.load(std::memory_order_relaxed) ||
      (stop_on_failure_.load(std::memory_order_relaxed) && error_.load(std::memory_order_relaxed) != ACL_SUCCESS);
  if (__builtin_expect(skip, 0)) {
    if (device->lost.load(std::memory_order_relaxed))
      set_error(ACL_ERROR_RT_LOST_HEARTBEAT, format("device %d is lost", device->id), nullptr);
    drop_task(task);
    return;
  }
  // The tasks of a graph leave records of their own.
  if (profiling() && task.kind != TaskKind::Graph) {
    execute_recorded(task);
  } else {
    perform(task);
  }
}

void Stream::execute_recorded(Task& task) {
  const TaskRecord record(*this, task);
  perform(task);
}

inline void Stream::perform(Task& task) {
  switch (task.kind) {
    case TaskKind::Op:
      run_op(*this, task);
      break;
    case TaskKind::Copy:
      run_copy(task.copy);
      break;
    case TaskKind::Fill:
      if (Device* to = device_of_alias(task.copy.to)) before_raw_write(*to, task.copy.to, task.copy.bytes);
      std::memset(task.copy.to, task.copy.value, task.copy.bytes);
      break;
    case TaskKind::Record:
      pass_failure_to(*task.event.event);
      drop_task(task);
      break;
    case TaskKind::Wait: {
      Event& event = *task.event.event;
      if (!event.complete(task.event.generation)) {
        const uint32_t limit = op_wait_timeout.load(std::memory_order_relaxed);
        const auto end = Clock::now() + std::chrono::seconds(limit);
        bool late = false;
        std::unique_lock<std::mutex> lock(event.mutex);
        while (!event.complete(task.event.generation) && !exiting() && !aborting() && !late) {
          event.passed.wait_for(lock, kSlice);
          late = limit > 0 && Clock::now() >= end;
        }
        lock.unlock();
        if (late)
          set_error(ACL_ERROR_RT_WAIT_TIMEOUT, format("stream %u waited more than %u s for an event", number, limit),
                    &task);
      }
      take_failure_from(event);
      release_event(&event);
      break;
    }
    case TaskKind::Reset:
      task.event.event->take_back();
      drop_task(task);
      break;
    case TaskKind::Callback:
      run_callback(task.callback, *this);
      break;
    case TaskKind::External:
      if (run_external(task.external, *this, task)) passes_failure_.store(true, std::memory_order_relaxed);
      break;
    case TaskKind::Graph:
      run_graph(task);
      drop_task(task);
      break;
  }
}

void Stream::execute_timed(Task& task) {
  const bool computes = task.kind == TaskKind::Op || task.kind == TaskKind::Copy || task.kind == TaskKind::Fill ||
                        task.kind == TaskKind::Graph;
  if (!computes) return execute(task);  // it may wait for others
  const int64_t begin = clock_ns(CLOCK_MONOTONIC);
  busy_since_.store(begin, std::memory_order_relaxed);
  execute(task);
  // In this order, so that busy_ns_of() never counts it twice.
  busy_since_.store(0, std::memory_order_relaxed);
  device->counters.busy_ns.fetch_add(clock_ns(CLOCK_MONOTONIC) - begin, std::memory_order_release);
}

void Stream::call_team() { set_team(host_team.load(std::memory_order_relaxed)); }

uint64_t Stream::busy_for() const {
  const int64_t begin = busy_since_.load(std::memory_order_relaxed);
  return begin == 0 ? 0 : std::max<int64_t>(clock_ns(CLOCK_MONOTONIC) - begin, 0);
}

void Stream::run_tiny(uint64_t last, bool waits_anyway) {
  for (uint64_t id = completed_.load(std::memory_order_relaxed) + 1; id <= last && ring_.has(id); ++id) {
    Task& task = ring_.task(id);
    // Who waits for a collective may as well wait inside it: one thread fewer to wake, and ranks share the cores.
    const bool external = waits_anyway && task.kind == TaskKind::External;
    if ((!external && !caller_may_run(task)) || exiting()) return;
    if (task.kind == TaskKind::Op) device->counters.ops_run_by_caller.fetch_add(1, std::memory_order_relaxed);
    execute(task);
    complete(id);
  }
}

void Stream::run_all() {
  for (uint64_t id = completed_.load(std::memory_order_relaxed) + 1; !exiting(); ++id) {
    if (!ring_.has(id)) {
      if (id > last_submitted()) break;
      // Its number is out, so the submitter is about to write it.
      while (!ring_.has(id)) spin(kWaiterSpin, true, [&] { return ring_.has(id); });
    }
    Task& task = ring_.task(id);
    if (task.tiny) {
      execute(task);
    } else if (task.kind == TaskKind::Op && task.narrow) {
      execute_timed(task);
    } else {
      // The same for every stream, however many compute at once: some kernels round differently with fewer threads, and
      // then results would depend on chance.
      call_team();
      execute_timed(task);
    }
    complete(id);
  }
}

bool Stream::wait(uint64_t id, int64_t timeout_ms) {
  streak_.store(0, std::memory_order_relaxed);
  const auto done = [&] { return completed_.load(std::memory_order_seq_cst) >= id; };
  if (done()) return true;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms < 0 ? 0 : timeout_ms);
  bool spun = false;
  while (!done() && !exiting()) {
    if (timeout_ms >= 0 && Clock::now() >= end) return false;
    if (take_token()) {
      const uint64_t before = completed_.load(std::memory_order_relaxed);
      run_tiny(id, timeout_ms < 0);
      if (completed_.load(std::memory_order_relaxed) != before) spun = false;
      drop_token();
      if (done()) break;
    }
    if (!spun && !machine_is_busy()) {
      spun = true;
      spin(kWaiterSpin, true, done);
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    if (!done()) {
      // Sliced, so that an exiting process is noticed.
      const auto until = Clock::now() + std::chrono::seconds(1);
      done_.wait_until(lock, timeout_ms >= 0 && end < until ? end : until);
    }
    waiters_.fetch_sub(1, std::memory_order_seq_cst);
  }
  return true;
}

// ---- the worker

void Stream::call_worker() {
  if (!worker_sleeps_.load(std::memory_order_seq_cst)) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!worker_started_) {
    start_worker();
    worker_started_ = true;
    worker_sleeps_.store(false, std::memory_order_seq_cst);
  } else {
    work_.notify_one();
  }
}

void Stream::start_worker() {
  // Signals are the host program's business: a worker takes none of them.
  sigset_t all, before;
  ::sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::sigdelset(&all, fault);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread worker([this] { work(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(worker.native_handle(),
                       ("npu" + std::to_string(device->id) + "-s" + std::to_string(number)).substr(0, 15).c_str());
  worker.detach();
}

void Stream::work() {
  prepare_worker_thread();
  awake_workers.fetch_add(1, std::memory_order_relaxed);
  for (;;) {
    if (exiting() || !take_token()) {
      sleep();
      continue;
    }
    do run_all();
    while (!exiting() && (look_out() || !let_go()));
    if (exiting()) {
      word_.fetch_and(~kRunning, std::memory_order_seq_cst);
    } else {
      // The host has waited, or does something else: it may take the token, and the worker still be at hand.
      if (!machine_is_busy())
        spin(kWorkerSpin, false,
             [&] { return ring_.has(completed_.load(std::memory_order_acquire) + 1) || exiting(); });
    }
  }
}

// Waits a while for the next task, with the token, unless the host has waited for the stream. True if there is one.
bool Stream::look_out() {
  const uint64_t next = completed_.load(std::memory_order_relaxed) + 1;
  if (machine_is_busy()) return ring_.has(next);
  spin(kWorkerSpin, false,
       [&] { return ring_.has(next) || streak_.load(std::memory_order_relaxed) < kStreak || exiting(); });
  return ring_.has(next);
}

void Stream::sleep() {
  std::unique_lock<std::mutex> lock(mutex_);
  streak_.store(0, std::memory_order_relaxed);
  awake_workers.fetch_sub(1, std::memory_order_relaxed);
  worker_sleeps_.store(true, std::memory_order_seq_cst);
  const auto wanted = [&] {
    const uint64_t word = word_.load(std::memory_order_seq_cst);
    return !(word & kRunning) && completed_.load(std::memory_order_acquire) != word >> kShift;
  };
  while (exiting() || !wanted()) work_.wait(lock);
  worker_sleeps_.store(false, std::memory_order_seq_cst);
  awake_workers.fetch_add(1, std::memory_order_relaxed);
}

void copy_now(void* to, const void* from, size_t bytes) {
  Device* source = device_of_alias(from);
  Device* target = device_of_alias(to);
  if (source && target) return copy_between_devices(*target, to, *source, from, bytes);
  if (target) before_raw_write(*target, to, bytes);
  if (source) {
    copy_from_device(*source, to, from, bytes);
  } else {
    copy_bytes(to, from, bytes);
  }
}

// ---- errors

void Stream::set_error(aclError code, const std::string& text, const Task* task) {
  if (log_enabled(LogLevel::Error)) {
    log_line(LogLevel::Error, "RUNTIME", __FILE__, __LINE__,
             format("device_id=%d, stream_id=%u, task_id=%llu, %s: ", device->id, number,
                    static_cast<unsigned long long>(task ? task->id : 0), error_name(code).c_str()) +
                 text);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (error_.load() == ACL_SUCCESS) {
      error_text_ = text;
      error_.store(code, std::memory_order_release);
    }
  }
  if (auto callback = exception_callback.load(std::memory_order_acquire); callback && task) {
    rtExceptionInfo info{static_cast<uint32_t>(task->id), number, static_cast<uint32_t>(::syscall(SYS_gettid)),
                         static_cast<uint32_t>(device->id), static_cast<uint32_t>(code)};
    callback(&info);
  }
}

aclError Stream::take_error(std::string* text) {
  if (error_.load(std::memory_order_acquire) == ACL_SUCCESS) return ACL_SUCCESS;
  std::lock_guard<std::mutex> lock(mutex_);
  const aclError code = error_.exchange(ACL_SUCCESS);
  *text = std::move(error_text_);
  error_text_.clear();
  passes_failure_.store(false, std::memory_order_relaxed);
  return code;
}

void Stream::pass_failure_to(Event& event) {
  const bool failed = passes_failure_.load(std::memory_order_relaxed);
  if (__builtin_expect(!failed && event.failure.load(std::memory_order_relaxed) == ACL_SUCCESS, 1)) return;
  std::string text;
  aclError code = ACL_SUCCESS;
  if (failed) {
    std::lock_guard<std::mutex> lock(mutex_);
    code = error_.load();
    text = error_text_;
  }
  std::lock_guard<std::mutex> lock(event.mutex);
  event.failure_text = text;
  event.failure.store(code, std::memory_order_release);
}

void Stream::take_failure_from(Event& event) {
  if (__builtin_expect(event.failure.load(std::memory_order_acquire) == ACL_SUCCESS, 1)) return;
  std::unique_lock<std::mutex> lock(event.mutex);
  const aclError code = event.failure.load();
  const std::string text = event.failure_text;
  lock.unlock();
  if (code == ACL_SUCCESS) return;
  set_error(code, text, nullptr);
  passes_failure_.store(true, std::memory_order_relaxed);
}

void Stream::set_stop_on_failure(bool stop) { stop_on_failure_.store(stop); }

// ---- life

void Stream::prepare(Device* on, Context* in, uint32_t with_flags, int32_t with_priority) {
  device = on;
  context = in;
  flags = with_flags;
  priority = with_priority;
  number = next_number.fetch_add(1);
  overflow_check.store(false);
  saturates.store(on->saturates.load(std::memory_order_relaxed));
  report = nullptr;
  stop_on_failure_.store(false);
  passes_failure_.store(false);
  error_.store(ACL_SUCCESS);
  error_text_.clear();
}

void Stream::abort() {
  abort_.store(true);
  // Whoever runs a task sees the mark and lets go; what is left is dropped instead of run.
  while (!idle() && !exiting()) {
    if (take_token()) {
      run_all();
      drop_token();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  abort_.store(false);
}

void set_op_execute_timeout_ms(uint64_t ms) { op_execute_timeout.store(ms); }
void set_op_wait_timeout(uint32_t seconds) { op_wait_timeout.store(seconds); }
int64_t op_execute_timeout_ms() { return static_cast<int64_t>(op_execute_timeout.load()); }
void set_exception_callback(aclrtExceptionInfoCallback callback) {
  exception_callback.store(callback, std::memory_order_release);
}

}  // namespace acl_sim
