// Which thread runs a backward pass.
//
// Note [Backward in the caller's thread]
// Upstream's engine gives each device a thread, so that several devices get their work at once. With one device there
// is nothing to do at once: the caller waits while the other thread launches, and each pass pays for two threads that
// wake each other. Beside a busy process that alone can take longer than a small network's step. So a pass runs in the
// thread that asked for it while this process has one device open, as the engine does when
// torch.autograd.set_multithreading_enabled(False) is on; with more devices, it is upstream's way.

#include <c10/core/AutogradState.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/util/irange.h>
#include <torch/csrc/npu/Bindings.h>

#include <algorithm>

namespace torch::npu {
namespace {

bool is_one_device_open() {
  if (!c10::npu::is_initialized()) return false;
  const auto devices = c10::irange(c10::npu::device_count());
  return std::count_if(devices.begin(), devices.end(), &c10::npu::hasPrimaryContext) == 1;
}

}  // namespace

void bind_autograd(pybind11::module_& m) {
  // Whether it has changed the thread's state, which _npu_exitBackward then changes back.
  m.def("_npu_enterBackward", []() {
    auto& state = c10::AutogradState::get_tls_state();
    if (!state.get_multithreading_enabled() || !is_one_device_open()) return false;
    state.set_multithreading_enabled(false);
    return true;
  });
  m.def("_npu_exitBackward", []() { c10::AutogradState::get_tls_state().set_multithreading_enabled(true); });
}

}  // namespace torch::npu
