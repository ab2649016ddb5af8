// Times of DistributedDataParallel's steps on npu, for its logging data (_get_ddp_logging_data).

#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <c10/npu/NPUEvent.h>
#include <c10/npu/NPUGuard.h>

#include <cmath>

namespace c10d {
namespace {

constexpr double kNanosecondsPerMillisecond = 1e6;

class NpuTimer : public Timer {
 public:
  explicit NpuTimer(c10::Device device) : device_(device) {}

  // Besides the host's time, a mark in the current stream.
  void record(Event event) override {
    Timer::record(event);
    const c10::npu::NPUGuard guard(device_.index());
    event_of(event).record();
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto& first = event_of(start);
    auto& last = event_of(end);
    if (!first.isCreated() || !last.isCreated()) return std::nullopt;
    // Marks of different steps, of which the later had no such part.
    if (getTimeRef(start) > getTimeRef(end)) return std::nullopt;
    first.synchronize();
    last.synchronize();
    const auto milliseconds = static_cast<double>(first.elapsed_time(last));
    return static_cast<int64_t>(std::llround(milliseconds * kNanosecondsPerMillisecond));
  }

 private:
  c10::npu::NPUEvent& event_of(Event event) { return events_[static_cast<size_t>(event)]; }

  const c10::Device device_;
  c10::npu::NPUEvent events_[5] = {c10::npu::NPUEvent(true), c10::npu::NPUEvent(true), c10::npu::NPUEvent(true),
                                   c10::npu::NPUEvent(true), c10::npu::NPUEvent(true)};
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, NpuTimer)

}  // namespace
}  // namespace c10d
