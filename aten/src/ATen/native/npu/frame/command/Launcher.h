#pragma once
// Where every operator goes to the device, and where whatever watches operators is told of them.
//
// Note [Launcher]
// launch_command() is the one way by which an operator is executed. PlainLaunch and OpCommand hand it a command of
// which all is settled: prepared by an encoder (Note [Encoders]), addresses of operands, a stream. It goes to the
// stream at the call or through the queue's thread (Note [Task queue]). What is to happen around operators is an
// observer:
//   - called() comes at the call, on the thread that called, in the order of calls: there a profiler notes what the
//   host
//     was doing, under the command's correlation id;
//   - execute() comes when the command goes to ACL, maybe on the queue's thread. It calls `next`, or does not: a
//   capture
//     into a graph records the command instead.
// Observers nest in the order of LaunchPlace. While there is none, a launch costs one look at a flag. ACL's own dump
// and profile watch below this interface, and need no observer.
// Copies and events are no operators; they go through c10::npu::launch and NPUEvent.

#include <ATen/native/npu/frame/command/Encoder.h>
#include <ATen/native/npu/frame/command/Gather.h>
#include <c10/core/Allocator.h>
#include <c10/npu/NPUStream.h>
#include <c10/npu/NPUTaskQueue.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <memory>
#include <utility>

namespace at::native::npu {

// From the outermost to the innermost.
enum class LaunchPlace : int { kCapture, kProfile, kCompileMode, kOverflowCheck };

// Told of the commands of all threads, at the same time too. Launches no operators itself.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  virtual void called(const Command& /*command*/, const c10::npu::NPUStream& /*stream*/) {}
  virtual aclError execute(const Command& /*command*/, aclrtStream /*stream*/, c10::function_ref<aclError()> next) {
    return next();
  }
};

// From now on, for all threads. An observer that is there already stays once.
void add_launch_observer(std::shared_ptr<LaunchObserver> observer, LaunchPlace place);
// Commands that are under way may still be told to it, hence the shared ownership.
void remove_launch_observer(const LaunchObserver* observer);

namespace detail {

extern std::atomic<bool> launches_are_observed;
aclError execute_observed(const Command& command, aclrtStream stream);
// Tells observers of a call and returns the command's correlation id.
uint64_t announce(Command command, const c10::npu::NPUStream& stream);
c10::DataPtr scratch_memory(size_t bytes, const c10::npu::NPUStream& stream);

inline aclError execute_command(const Command& command, aclrtStream stream) {
  if (C10_LIKELY(!launches_are_observed.load(std::memory_order_relaxed))) {
    return command.prepared->execute(command, stream);
  }
  return execute_observed(command, stream);
}

// A command on its way to the stream. Run at the call it borrows what is prepared; moved into the queue it keeps it.
template <class Operands>
class CommandTask {
 public:
  CommandTask(const char* ir, Prepared& prepared) : ir_(ir), prepared_(&prepared) {}
  CommandTask(CommandTask&& other)
      : ir_(other.ir_),
        prepared_(other.prepared_),
        kept_(c10::intrusive_ptr<Prepared>::reclaim_copy(other.prepared_)),
        operands_(std::move(other.operands_)),
        scratch_(other.scratch_),
        correlation_(other.correlation_) {}
  CommandTask(const CommandTask&) = delete;
  CommandTask& operator=(const CommandTask&) = delete;
  CommandTask& operator=(CommandTask&&) = delete;
  ~CommandTask() = default;

  aclError operator()(aclrtStream stream) const { return execute_command(command(), stream); }
  Operands& operands() { return operands_; }
  Command command() const { return {ir_, prepared_, operands_.memory(), scratch_, correlation_}; }
  void set_scratch(void* scratch) { scratch_ = scratch; }
  void set_correlation(uint64_t correlation) { correlation_ = correlation; }

 private:
  const char* ir_;
  Prepared* prepared_;
  c10::intrusive_ptr<Prepared> kept_;
  Operands operands_;
  void* scratch_ = nullptr;
  uint64_t correlation_ = 0;
};

// A command that a gatherer keeps.
template <class Operands>
class Gathered final : public GatheredCommand {
 public:
  Gathered(const c10::npu::NPUStream& stream, CommandTask<Operands>&& task)
      : GatheredCommand(stream), task_(std::move(task)) {}
  Command command() const override { return task_.command(); }
  Memory* operands() override { return task_.operands().memory(); }
  aclError execute(aclrtStream stream) const override { return task_(stream); }

 private:
  CommandTask<Operands> task_;
};

}  // namespace detail

// Puts a command on the stream. `fill` writes its Operands where they stay: they own the list of memory (memory() gives
// the first entry) and what host values lie in, and are moved into the queue where there is one. Throws as
// c10::npu::launch does.
template <class Operands, class Fill>
inline void launch_command(const c10::npu::NPUStream& stream, const char* ir, Prepared& prepared, const Fill& fill) {
  detail::CommandTask<Operands> task(ir, prepared);
  fill(task.operands());
  if (C10_UNLIKELY(c10::npu::detail::gatherers.load(std::memory_order_relaxed) > 0)) {
    if (Gatherer* gatherer = gatherer_for(stream, prepared)) {
      gatherer->take(std::make_unique<detail::Gathered<Operands>>(stream, std::move(task)));
      return;
    }
  }
  c10::DataPtr scratch;  // given back after the launch: only later work of the stream gets it
  if (C10_UNLIKELY(prepared.scratch_bytes() != 0)) {
    scratch = detail::scratch_memory(prepared.scratch_bytes(), stream);
    task.set_scratch(scratch.get());
  }
  if (C10_UNLIKELY(detail::launches_are_observed.load(std::memory_order_relaxed))) {
    task.set_correlation(detail::announce(task.command(), stream));
  }
  c10::npu::launch(stream, ir, std::move(task));
}

}  // namespace at::native::npu
