#include "runtime/stream.h"

#include "exec/run.h"
#include "exec/scratch.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/event.h"
#include "runtime/handles.h"
#include "runtime/log.h"
#include "runtime/process.h"
#include "runtime/report.h"

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
using StreamPool = HandlePool<Stream, 2048>;

// A host that runs ahead of its device is held here: queued work has memory of its own.
constexpr uint32_t kMostQueued = 8192;
// Spinning that long before sleeping spares a wake-up (about 50 us) where the next task or result is close.
constexpr auto kWorkerSpin = std::chrono::microseconds(20);
constexpr auto kWaiterSpin = std::chrono::microseconds(50);
// How often waits look whether the process ends or the stream is aborted.
constexpr auto kSlice = std::chrono::milliseconds(20);
constexpr int64_t kFreePatienceMs = 10000;
constexpr auto kExitPatience = std::chrono::seconds(60);

StreamPool& pool() {
  static auto* value = new StreamPool;
  return *value;
}

std::atomic<int> active_workers{0};
std::atomic<uint32_t> next_number{0};
std::atomic<uint32_t> op_execute_timeout{600};
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

void drop(Task& task) {
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
      release_event(task.event.event);
      break;
    case TaskKind::Callback:
      break;
  }
}

// Here, and not by a look at the stream before: an idle stream may have stopped being one by the time of submission.
void stage(CopyWork& copy) {
  copy.owned = take_scratch(copy.bytes);
  std::memcpy(copy.owned, copy.from, copy.bytes);
  copy.from = copy.owned;
}

void run_copy(CopyWork& copy) {
  copy_now(copy.to, copy.from, copy.bytes);
  give_scratch(copy.owned);
}

}  // namespace

// ---- submitting

bool Stream::caller_may_run(const Task& task) const {
  return task.tiny || (task.kind == TaskKind::Wait && task.event.event->complete(task.event.generation));
}

void Stream::submit(Task& task) {
  uint64_t word = word_.load(std::memory_order_relaxed);
  if ((word & (kRunning | kQueued)) == 0 && caller_may_run(task)) {
    const uint64_t next = word + (uint64_t{1} << kShift);
    if (word_.compare_exchange_strong(word, next | kRunning, std::memory_order_acq_rel)) {
      task.id = next >> kShift;
      if (__builtin_expect(exiting(), 0)) {
        drop(task);
      } else {
        if (task.kind == TaskKind::Op)
          direct_ops_.store(direct_ops_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        execute(task);
      }
      completed_.store(task.id, std::memory_order_release);
      give_back_token();
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
    drop(task);
    return;
  }
  if (task.kind == TaskKind::Op) device->counters.ops_launched.fetch_add(1, std::memory_order_relaxed);
  if (task.kind == TaskKind::Copy && task.copy.pageable) stage(task.copy);
  std::unique_lock<std::mutex> lock(mutex_);
  if (queued_.load(std::memory_order_relaxed) >= kMostQueued) wait_for_room(lock);
  if (!task.tiny) host_team.store(omp_get_max_threads(), std::memory_order_relaxed);
  Task* node = take_node();
  uint64_t word = word_.load(std::memory_order_relaxed), next = 0;
  do {
    next = (word + (uint64_t{1} << kShift)) | kQueued;
  } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel));
  task.id = next >> kShift;
  std::memcpy(static_cast<void*>(node), &task, sizeof(Task));
  node->next = nullptr;
  (tail_ ? tail_->next : head_) = node;
  tail_ = node;
  queued_.fetch_add(1, std::memory_order_release);
  if (!(next & kRunning)) wake_worker();
}

void Stream::give_back_token() {
  uint64_t word = word_.load(std::memory_order_relaxed);
  while (!(word & kQueued)) {
    if (word_.compare_exchange_weak(word, word & ~kRunning, std::memory_order_acq_rel)) return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  give_back_token_locked();
  if (head_) wake_worker();
}

void Stream::give_back_token_locked() {
  word_.fetch_and(head_ ? ~kRunning : ~(kRunning | kQueued), std::memory_order_acq_rel);
}

void Stream::wait_for_room(std::unique_lock<std::mutex>& lock) {
  waiters_.fetch_add(1);
  while (queued_.load(std::memory_order_relaxed) > kMostQueued / 2 && !exiting()) done_.wait_for(lock, kSlice);
  waiters_.fetch_sub(1);
}

Task* Stream::take_node() {
  if (!free_nodes_) {
    constexpr int kChunk = 32;
    auto* chunk = new Task[kChunk];  // nodes are reused as long as the process lives
    for (int i = 0; i < kChunk; ++i) recycle(&chunk[i]);
  }
  Task* node = free_nodes_;
  free_nodes_ = node->next;
  return node;
}

void Stream::recycle(Task* task) {
  task->next = free_nodes_;
  free_nodes_ = task;
}

Task* Stream::pop() {
  Task* task = head_;
  head_ = task->next;
  if (!head_) tail_ = nullptr;
  queued_.fetch_sub(1, std::memory_order_relaxed);
  return task;
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
    drop(task);
    return;
  }
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
      drop(task);
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
      release_event(&event);
      break;
    }
    case TaskKind::Callback:
      run_callback(task.callback, *this);
      break;
  }
}

void Stream::run_head(std::unique_lock<std::mutex>& lock) {
  word_.fetch_or(kRunning, std::memory_order_acq_rel);
  Task* task = pop();
  lock.unlock();
  if (task->kind == TaskKind::Op) device->counters.ops_run_by_caller.fetch_add(1, std::memory_order_relaxed);
  execute(*task);
  complete(task->id);
  lock.lock();
  recycle(task);
  give_back_token_locked();
}

bool Stream::wait(uint64_t id, int64_t timeout_ms) {
  if (completed_.load(std::memory_order_acquire) >= id) return true;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms < 0 ? 0 : timeout_ms);
  const auto done = [&] { return completed_.load(std::memory_order_seq_cst) >= id; };
  std::unique_lock<std::mutex> lock(mutex_);
  bool spun = false;
  while (!done() && !exiting()) {
    if (timeout_ms >= 0 && Clock::now() >= end) return false;
    if (!running() && head_ && caller_may_run(*head_)) {
      run_head(lock);
      spun = false;
      // The worker takes over only where this thread stops: at a large task, or at its own target.
      if (head_ && (!caller_may_run(*head_) || done())) wake_worker();
      continue;
    }
    if (!spun) {
      spun = true;
      lock.unlock();
      spin(kWaiterSpin, true, done);
      lock.lock();
      continue;
    }
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

void Stream::wake_worker() {
  if (!worker_started_) {
    worker_started_ = true;
    start_worker();
  } else if (worker_sleeps_) {
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
  std::unique_lock<std::mutex> lock(mutex_);
  bool may_spin = false;
  for (;;) {
    if (exiting() || !head_ || running()) {
      if (may_spin && !exiting()) {
        may_spin = false;
        lock.unlock();
        spin(kWorkerSpin, false, [&] { return queued_.load(std::memory_order_acquire) > 0; });
        lock.lock();
        continue;
      }
      worker_sleeps_ = true;
      work_.wait(lock);
      worker_sleeps_ = false;
      continue;
    }
    active_workers.fetch_add(1, std::memory_order_relaxed);
    word_.fetch_or(kRunning, std::memory_order_seq_cst);
    while (head_ && !exiting()) {
      Task* task = pop();
      lock.unlock();
      if (!task->tiny) set_team_for_task();
      execute(*task);
      complete(task->id);
      lock.lock();
      recycle(task);
    }
    give_back_token_locked();
    active_workers.fetch_sub(1, std::memory_order_relaxed);
    may_spin = true;
  }
}

void copy_now(void* to, const void* from, size_t bytes) {
  Device* source = device_of_alias(from);
  if (Device* target = device_of_alias(to)) before_raw_write(*target, to, bytes);
  if (source) {
    copy_from_device(*source, to, from, bytes);
  } else {
    copy_bytes(to, from, bytes);
  }
}

void set_team_for_task() {
  const int active = active_workers.load(std::memory_order_relaxed);
  const int team = host_team.load(std::memory_order_relaxed);
  set_team(active > 1 ? (team / active > 1 ? team / active : 1) : team);
}

void park_workers() {
  const auto end = Clock::now() + kExitPatience;
  pool().each([&](Stream& stream) {
    while (stream.running() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
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
  return code;
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
  report = nullptr;
  stop_on_failure_.store(false);
  error_.store(ACL_SUCCESS);
  error_text_.clear();
}

void Stream::abort() {
  std::unique_lock<std::mutex> lock(mutex_);
  abort_.store(true);
  while (head_) {
    Task* task = pop();
    drop(*task);
    recycle(task);
  }
  while (running() && !exiting()) done_.wait_for(lock, std::chrono::milliseconds(2));
  if (!running()) give_back_token_locked();
  completed_.store(last_submitted(), std::memory_order_seq_cst);
  abort_.store(false);
  done_.notify_all();
}

void Stream::destroy(bool drop_work) {
  if (drop_work) abort();
  wait(last_submitted(), -1);
  alive.store(false, std::memory_order_release);
  device->counters.direct_ops_of_old_streams.fetch_add(direct_ops_.exchange(0));
  lives.fetch_add(1);
  pool().give(this);
}

Stream& create_stream(Context& context, uint32_t flags, int32_t priority) {
  Stream* stream = pool().take();
  if (!stream) throw Error(ACL_ERROR_RT_NO_STREAM_RESOURCE, "too many streams");
  stream->prepare(context.device, &context, flags, priority);
  stream->alive.store(true, std::memory_order_release);
  return *stream;
}

Stream& stream_of(aclrtStream handle) {
  if (!handle) return *current_context().default_stream;
  if (Stream* stream = pool().check(handle)) return *stream;
  throw Error(ACL_ERROR_RT_INVALID_HANDLE, format("%p is no stream", handle));
}

Stream& submit_stream_of(aclrtStream handle) {
  Context& context = current_context();
  if (!handle) return *context.default_stream;
  Stream* stream = pool().check(handle);
  if (!stream) throw Error(ACL_ERROR_RT_INVALID_HANDLE, format("%p is no stream", handle));
  if (__builtin_expect(stream->device != context.device, 0)) {
    throw Error(ACL_ERROR_RT_STREAM_CONTEXT,
                format("the stream belongs to device %d, the calling thread works with device %d", stream->device->id,
                       context.device->id));
  }
  return *stream;
}

aclError synchronize(Stream& stream, int64_t timeout_ms) {
  if (!stream.wait(stream.last_submitted(), timeout_ms)) {
    return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
                format("stream %u of device %d was not done after %lld ms", stream.number, stream.device->id,
                       static_cast<long long>(timeout_ms)));
  }
  if (stream.device->lost.load())
    return report(ACL_ERROR_RT_LOST_HEARTBEAT, format("device %d is lost", stream.device->id));
  std::string text;
  const aclError code = stream.take_error(&text);
  return code == ACL_SUCCESS ? ACL_SUCCESS : report(code, text);
}

aclError synchronize_device(Device& device, int64_t timeout_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms < 0 ? 0 : timeout_ms);
  aclError first = ACL_SUCCESS;
  std::string first_text;
  pool().each([&](Stream& stream) {
    if (stream.device != &device) return;
    int64_t left = -1;
    if (timeout_ms >= 0) {
      left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left < 0) left = 0;
    }
    const aclError code = synchronize(stream, left);
    if (code != ACL_SUCCESS && first == ACL_SUCCESS) {
      first = code;
      const char* text = take_recent_message();
      first_text = text ? text + sizeof("E000000: ") - 1 : "";
    }
  });
  return first == ACL_SUCCESS ? ACL_SUCCESS : report(first, first_text);
}

std::vector<StreamMark> mark_streams() {
  std::vector<StreamMark> marks;
  pool().each([&](Stream& stream) {
    if (!stream.idle()) marks.push_back({&stream, stream.last_submitted()});
  });
  return marks;
}

bool have_passed(const std::vector<StreamMark>& marks) {
  return std::all_of(marks.begin(), marks.end(), [](const StreamMark& m) { return m.stream->has_run(m.id); });
}

uint64_t direct_ops_of(const Device& device) {
  uint64_t sum = device.counters.direct_ops_of_old_streams.load();
  pool().each([&](Stream& stream) { sum += stream.device == &device ? stream.direct_ops() : 0; });
  return sum;
}

void drain_device(const Device& device) {
  pool().each([&](Stream& stream) {
    if (stream.device == &device && !stream.idle()) stream.wait(stream.last_submitted(), kFreePatienceMs);
  });
}

void destroy_streams(Device& device, Context* context) {
  std::vector<Stream*> found;
  pool().each([&](Stream& stream) {
    if (stream.device == &device && (!context || stream.context == context)) found.push_back(&stream);
  });
  for (Stream* stream : found) stream->destroy(false);
}

void abort_device(Device& device) {
  pool().each([&](Stream& stream) {
    if (stream.device == &device) stream.abort();
  });
}

void set_op_execute_timeout(uint32_t seconds) { op_execute_timeout.store(seconds); }
void set_op_wait_timeout(uint32_t seconds) { op_wait_timeout.store(seconds); }
int64_t op_execute_timeout_ms() { return static_cast<int64_t>(op_execute_timeout.load()) * 1000; }
void set_exception_callback(aclrtExceptionInfoCallback callback) {
  exception_callback.store(callback, std::memory_order_release);
}

}  // namespace acl_sim
