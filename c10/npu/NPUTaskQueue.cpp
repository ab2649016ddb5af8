// The queue's threads, launching, and copies.

#include <c10/npu/NPUTaskQueue.h>

#include <acl_loader.h>
#include <c10/npu/NPUGraphsC10Utils.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUSyncDebug.h>
#include <c10/npu/impl/Correlation.h>
#include <c10/npu/impl/Exit.h>
#include <c10/npu/impl/Interrupt.h>
#include <c10/npu/impl/PinnedRanges.h>
#include <c10/util/irange.h>
#include <c10/util/thread_name.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace c10::npu {

namespace {

constexpr size_t kCapacity = 4096;  // a producer that is this far ahead waits

struct QueuedTask {
  aclrtStream stream;
  std::string name;
  std::unique_ptr<detail::TaskBase> task;
  uint64_t correlation = 0;
};

struct DeferredError {
  std::string task;
  aclError code = ACL_SUCCESS;
  std::string reason;
};

using detail::devices_with_error;

// The queue of one device; its thread starts with the first task. It runs tasks and leaves destroying them to the
// threads that launch or synchronise: a task may own tensors, dropping one may need Python's lock, and a thread that
// holds that lock may be waiting for the queue.
class TaskQueue {
 public:
  explicit TaskQueue(DeviceIndex device) : device_(device) {}

  void push(QueuedTask task) {
    FinishedTasks finished;
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [this] { return tasks_.size() < kCapacity; });
    tasks_.push_back(std::move(task));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { work(); });
    }
    finished.swap(finished_);
    lock.unlock();
    has_work_.notify_one();
  }

  void wait_until_empty() {
    std::unique_lock lock(mutex_);
    is_idle_.wait(lock, [this] { return tasks_.empty() && !running_; });
  }

  void drop_finished() {
    FinishedTasks finished;
    const std::lock_guard lock(mutex_);
    finished.swap(finished_);
  }

  // The first error since the last call.
  std::optional<DeferredError> take_error() {
    const std::lock_guard lock(mutex_);
    auto error = std::move(error_);
    error_.reset();
    if (error.has_value()) {
      devices_with_error.fetch_sub(1);
    }
    return error;
  }

  // Runs what is queued and ends the thread. What tasks hold is left to the end of the process.
  void stop() {
    std::thread ending;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      ending = std::move(thread_);
    }
    has_work_.notify_all();
    if (ending.joinable()) {
      ending.join();
    }
  }

 private:
  using FinishedTasks = std::vector<std::unique_ptr<detail::TaskBase>>;

  void work() {
    c10::setThreadName("npu_queue_" + std::to_string(device_));
    std::unique_lock lock(mutex_);
    while (true) {
      has_work_.wait(lock, [this] { return !tasks_.empty() || stopping_; });
      if (tasks_.empty()) {
        return;
      }
      QueuedTask task = std::move(tasks_.front());
      tasks_.pop_front();
      running_ = true;
      lock.unlock();
      has_room_.notify_one();
      auto error = run(task);
      lock.lock();
      finished_.push_back(std::move(task.task));
      running_ = false;
      if (error.has_value() && !error_.has_value()) {
        error_ = std::move(error);
        devices_with_error.fetch_add(1);
      }
      if (tasks_.empty()) {
        is_idle_.notify_all();
      }
    }
  }

  std::optional<DeferredError> run(const QueuedTask& task) const {
    try {
      set_device(device_, /*force=*/true);
      if (C10_UNLIKELY(impl::correlates.load(std::memory_order_relaxed) > 0)) {
        acl::aclsimSetCorrelation(task.correlation);
      }
      const aclError code = task.task->run(task.stream);
      if (code == ACL_SUCCESS) {
        return std::nullopt;
      }
      return DeferredError{task.name, code, take_recent_error()};
    } catch (const c10::Error& error) {
      return DeferredError{task.name, ACL_ERROR_FAILURE, error.what_without_backtrace()};
    } catch (const std::exception& error) {
      return DeferredError{task.name, ACL_ERROR_FAILURE, error.what()};
    }
  }

  const DeviceIndex device_;
  std::mutex mutex_;
  std::condition_variable has_work_, has_room_, is_idle_;
  std::deque<QueuedTask> tasks_;
  FinishedTasks finished_;
  bool running_ = false;
  bool stopping_ = false;
  std::optional<DeferredError> error_;
  std::thread thread_;
};

// Never destroyed: a thread may outlive static destruction.
std::array<std::atomic<TaskQueue*>, C10_COMPILE_TIME_MAX_NPUS> queues{};

TaskQueue& queue(DeviceIndex device) {
  auto& slot = queues[static_cast<size_t>(device)];
  TaskQueue* found = slot.load(std::memory_order_acquire);
  if (found == nullptr) {
    auto made = std::make_unique<TaskQueue>(device);
    if (slot.compare_exchange_strong(found, made.get())) {
      found = made.release();
    }
  }
  return *found;
}

bool delivers_at_the_call() {
  static const bool at_the_call = [] {
    const bool direct =
        options().task_queue == TaskQueueMode::Off || (options().task_queue == TaskQueueMode::On && is_simulator());
    detail::direct_launches.store(direct && !options().launch_blocking);
    return direct || options().launch_blocking;
  }();
  return at_the_call || is_shut_down();
}

void raise_deferred_error(DeviceIndex device) {
  TaskQueue* found = queues[static_cast<size_t>(device)].load(std::memory_order_acquire);
  if (found == nullptr) {
    return;
  }
  if (const auto error = found->take_error()) {
    detail::throw_launch_error({"Run", __FILE__, static_cast<uint32_t>(__LINE__)}, error->task.c_str(), error->code,
                               error->reason);
  }
}

}  // namespace

namespace impl {
std::atomic<int> correlates{0};
}  // namespace impl

namespace detail {

std::atomic<bool> direct_launches{false};
std::atomic<int> devices_with_error{0};
std::atomic<int> gatherers{0};

namespace {
std::atomic<LaunchGathered> send_gathered{nullptr};
}  // namespace

void set_launch_gathered(LaunchGathered function) { send_gathered.store(function); }
void launch_gathered() {
  if (const LaunchGathered send = send_gathered.load()) send();
}

void LaunchScope::enter(DeviceIndex device) {
  impl::stay_if_exiting();
  if (C10_UNLIKELY(gatherers.load(std::memory_order_relaxed) > 0)) {
    launch_gathered();
  }
  if (C10_UNLIKELY(thread_device.current != device)) {
    previous_ = ExchangeDevice(device);
  }
  try {
    activate_device();
    at_the_call_ = delivers_at_the_call();
    if (C10_UNLIKELY(devices_with_error.load(std::memory_order_relaxed) > 0)) {
      raise_deferred_error(device);
    }
  } catch (...) {
    // No destructor runs for an object whose constructor throws.
    unchecked_set_device(previous_);
    throw;
  }
}

void finish_launch(const NPUStream& stream, const char* name, aclError code) {
  if (C10_UNLIKELY(code != ACL_SUCCESS)) {
    throw_launch_error({"Run", __FILE__, static_cast<uint32_t>(__LINE__)}, name, code, take_recent_error());
  }
  if (options().launch_blocking) {
    stream.synchronize();
  }
}

void drop_finished_tasks(DeviceIndex device) {
  if (TaskQueue* found = queues[static_cast<size_t>(device)].load(std::memory_order_acquire)) {
    found->drop_finished();
  }
}

void enqueue(const NPUStream& stream, const char* name, std::unique_ptr<TaskBase> task) {
  const bool correlates = C10_UNLIKELY(impl::correlates.load(std::memory_order_relaxed) > 0);
  queue(stream.device_index())
      .push({stream.stream(), name, std::move(task), correlates ? acl::aclsimGetCorrelation() : 0});
}

}  // namespace detail

void drain_task_queue(DeviceIndex device, bool raise) {
  if (C10_UNLIKELY(detail::gatherers.load(std::memory_order_relaxed) > 0)) {
    detail::launch_gathered();
  }
  TaskQueue* found = queues[static_cast<size_t>(device)].load(std::memory_order_acquire);
  if (C10_LIKELY(found == nullptr)) {
    return;
  }
  found->wait_until_empty();
  if (raise) {
    raise_deferred_error(device);
  }
}

std::string stop_task_queues() noexcept {
  std::string left_behind;
  for (auto& slot : queues) {
    if (TaskQueue* found = slot.load(std::memory_order_acquire)) {
      found->stop();
      if (const auto error = found->take_error()) {
        left_behind += c10::str(left_behind.empty() ? "" : "; ", error->task, ": NPU error, NPU error code is ",
                                error->code, " (", error_name(error->code), ") ", error->reason);
      }
    }
  }
  return left_behind;
}

void memcpy_async(void* dst, const void* src, size_t nbytes, aclrtMemcpyKind kind, const NPUStream& stream) {
  if (nbytes == 0) {
    return;
  }
  if (C10_UNLIKELY(is_any_capture_under_way()) && kind == ACL_MEMCPY_HOST_TO_DEVICE && !impl::is_pinned(src)) {
    assert_not_capturing(stream, "Copying from host memory that is not pinned");
  }
  launch(stream, "aclrtMemcpyAsync",
         [=](aclrtStream handle) { return acl::aclrtMemcpyAsync(dst, nbytes, src, nbytes, kind, handle); });
  if (kind == ACL_MEMCPY_HOST_TO_DEVICE && !delivers_at_the_call() && !impl::is_pinned(src)) {
    drain_task_queue(stream.device_index());
  }
}

void memcpy_and_sync(void* dst, const void* src, size_t nbytes, aclrtMemcpyKind kind, const NPUStream& stream) {
  assert_not_capturing(stream, kind == ACL_MEMCPY_DEVICE_TO_HOST
                                   ? "A value is wanted on the host (item(), tolist(), cpu(), print, nonzero, ...)"
                                   : "Copying from the host, unless from pinned memory with non_blocking=True,");
  report_sync();
  // A copy to pageable memory waits inside ACL, without a limit: what is queued before it is waited for here.
  if (kind == ACL_MEMCPY_DEVICE_TO_HOST) {
    const impl::InterruptScope scope;
    stream.synchronize();
  }
  memcpy_async(dst, src, nbytes, kind, stream);
  stream.synchronize();
}

}  // namespace c10::npu
