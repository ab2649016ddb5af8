#pragma once
// How work reaches a stream: launch() puts a task on it, at the call or through the queue's thread.
//
//   c10::npu::launch(stream, "Add", [command = std::move(c)](aclrtStream s) { return command.execute(s); });

#include <c10/npu/NPUOptions.h>
#include <c10/npu/NPUStream.h>
#include <c10/npu/impl/Exit.h>

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace c10::npu {

// Note [Task queue]
// On a card, putting an operator on a stream costs the host more than preparing it, so tasks go through a queue to
// one thread per device, which launches them in the order of the calls, whatever their streams. Everything else that
// depends on that order (events, waits, queries, frees past the cache) first drains the queue and then
// talks to ACL on the calling thread. The simulator takes a task at once, so there launch() is a plain call.
// A task that fails in the queue keeps its error; the next launch or wait for that device raises it, with the
// advice to set TASK_QUEUE_ENABLE=0. Tasks queued behind it still run.

namespace detail {

class TaskBase {
 public:
  virtual ~TaskBase() = default;
  virtual aclError run(aclrtStream stream) = 0;
};

template <class F>
class TaskImpl final : public TaskBase {
 public:
  explicit TaskImpl(F&& f) : f_(std::move(f)) {}
  explicit TaskImpl(const F& f) : f_(f) {}
  aclError run(aclrtStream stream) override { return f_(stream); }

 private:
  F f_;
};

// Whether a launch is nothing but a call: no queue, and nobody waits for each. False until the first launch.
C10_NPU_API extern std::atomic<bool> direct_launches;
C10_NPU_API extern std::atomic<int> devices_with_error;

// Note [Gathered commands]
// Graph mode (ATen/native/npu/frame/graph) keeps operators back in order to send fewer of them. Whatever else reaches a
// stream, and whatever waits or asks for one, first has them sent: LaunchScope and drain_task_queue see to it. So the
// device gets everything in the order of the calls, whoever gathers. While nobody does, that costs one look at a
// number.
C10_NPU_API extern std::atomic<int> gatherers;
// Called for it while there are gatherers; returns at once on a thread that is sending what was gathered.
using LaunchGathered = void (*)();
C10_NPU_API void set_launch_gathered(LaunchGathered function);
C10_NPU_API void launch_gathered();

// While it lives, the stream's device is the thread's active one. Raises what an earlier task left behind.
class C10_NPU_API LaunchScope {
 public:
  explicit LaunchScope(const NPUStream& stream) {
    const auto& thread = thread_device;
    const DeviceIndex device = stream.device_index();
    if (C10_UNLIKELY(
            thread.current != device || thread.active != device || !direct_launches.load(std::memory_order_relaxed) ||
            closed.load(std::memory_order_relaxed) || impl::exiting.load(std::memory_order_relaxed) ||
            devices_with_error.load(std::memory_order_relaxed) > 0 || gatherers.load(std::memory_order_relaxed) > 0)) {
      enter(device);
    }
  }
  ~LaunchScope() {
    if (C10_UNLIKELY(previous_ >= 0)) {
      unchecked_set_device(previous_);
    }
  }
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;
  bool at_the_call() const { return at_the_call_; }

 private:
  void enter(DeviceIndex device);
  DeviceIndex previous_ = -1;
  bool at_the_call_ = true;
};

// Raises a failed launch; waits for the stream under ASCEND_LAUNCH_BLOCKING=1.
C10_NPU_API void finish_launch(const NPUStream& stream, const char* name, aclError code);
// Destroys tasks that have run, and with them the tensors that they held. Not to be called under a lock.
C10_NPU_API void drop_finished_tasks(DeviceIndex device);
C10_NPU_API void enqueue(const NPUStream& stream, const char* name, std::unique_ptr<TaskBase> task);

}  // namespace detail

// Puts `task`, called as `aclError task(aclrtStream)`, on the stream. `name` is the operator's type or what else the
// task does, for error texts. The task owns what it needs, except device memory: blocks freed after the call are
// handed out again only to later work of the same stream. Throws when the launch fails, unless it is deferred.
template <class F>
void launch(const NPUStream& stream, const char* name, F&& task) {
  const detail::LaunchScope scope(stream);
  if (C10_LIKELY(scope.at_the_call())) {
    const aclError code = task(stream.stream());
    if (C10_UNLIKELY(code != ACL_SUCCESS || !detail::direct_launches.load(std::memory_order_relaxed))) {
      detail::finish_launch(stream, name, code);
    }
    impl::stay_if_exiting();
  } else {
    detail::enqueue(stream, name, std::make_unique<detail::TaskImpl<std::decay_t<F>>>(std::forward<F>(task)));
  }
}

// Returns when no task of the device waits in the queue, and raises what one of them left behind; unless `raise`, that
// is kept for the next call.
C10_NPU_API void drain_task_queue(DeviceIndex device, bool raise = true);
// For npu_shutdown: drains every queue and ends its thread, without raising; returns what was left behind as text.
C10_NPU_API std::string stop_task_queues() noexcept;

// Copies on a stream. Pinned host memory must stay alive and unchanged until the copy is done: the pinned allocator
// sees to it when recordEvent is called after this. Pageable memory that is copied from has been read when this
// returns; whoever copies to it waits for the stream.
C10_NPU_API void memcpy_async(void* dst, const void* src, size_t nbytes, aclrtMemcpyKind kind, const NPUStream& stream);
// Copies and waits.
C10_NPU_API void memcpy_and_sync(void* dst, const void* src, size_t nbytes, aclrtMemcpyKind kind,
                                 const NPUStream& stream);

}  // namespace c10::npu
