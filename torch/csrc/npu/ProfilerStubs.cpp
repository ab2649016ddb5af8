// Device time for torch.autograd.profiler.profile(use_npu=True) and use_device="npu": upstream's profiler asks these
// methods for a mark before and after each operator and for the time between the two.

#include <c10/npu/NPUEvent.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUGuard.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/profiler/stubs/base.h>

namespace torch::npu {
namespace {

using profiler::impl::ProfilerVoidEventStub;

class NPUProfilerStubs final : public profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    const auto stream = c10::npu::getCurrentNPUStream();
    if (device != nullptr) {
      *device = stream.device_index();
    }
    auto mark = std::make_shared<c10::npu::NPUEvent>(/*enable_timing=*/true);
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
    mark->record(stream);
    *event = std::move(mark);
  }

  // Microseconds, which is what upstream's tables count in.
  float elapsed(const ProfilerVoidEventStub* start, const ProfilerVoidEventStub* end) const override {
    const auto& from = *static_cast<const c10::npu::NPUEvent*>(start->get());
    const auto& to = *static_cast<const c10::npu::NPUEvent*>(end->get());
    from.synchronize();
    to.synchronize();
    return from.elapsed_time(to) * 1000.0F;
  }

  // Named ranges belong to msprof's time line, which upstream's tables do not read.
  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}

  bool enabled() const override { return true; }

  // Only devices in use: a profile of npu:1 must not open npu:0.
  void onEachDevice(std::function<void(int)> op) const override {
    const auto current = c10::npu::getCurrentNPUStream().device_index();
    for (c10::DeviceIndex index = 0; index < c10::npu::device_count(); ++index) {
      if (index == current || c10::npu::hasPrimaryContext(index)) {
        const c10::npu::NPUGuard guard(index);
        op(index);
      }
    }
  }

  void synchronize() const override { c10::npu::device_synchronize(); }
};

}  // namespace

void register_profiler_stubs() {
  static NPUProfilerStubs stubs;
  profiler::impl::registerPrivateUse1Methods(&stubs);
}

}  // namespace torch::npu
