// Who gathers commands, and when what is gathered is sent.

#include <ATen/native/npu/frame/command/Gather.h>

#include <ATen/native/npu/frame/command/Launcher.h>

#include <atomic>

namespace at::native::npu {

namespace {

thread_local Gatherer* own_gatherer __attribute__((tls_model("initial-exec"))) = nullptr;
thread_local bool sending __attribute__((tls_model("initial-exec"))) = false;
std::atomic<Gatherer*> common_gatherer{nullptr};

void send_gathered() {
  if (sending) return;
  if (own_gatherer != nullptr) own_gatherer->send();
  if (Gatherer* common = common_gatherer.load()) common->send();
}

void count_gatherer(bool more) {
  c10::npu::detail::set_launch_gathered(&send_gathered);
  c10::npu::detail::gatherers.fetch_add(more ? 1 : -1);
}

}  // namespace

Gatherer* gather_own_commands(Gatherer* gatherer) {
  Gatherer* before = std::exchange(own_gatherer, gatherer);
  if ((before != nullptr) != (gatherer != nullptr)) count_gatherer(gatherer != nullptr);
  return before;
}

void gather_all_commands(Gatherer* gatherer) {
  const Gatherer* before = common_gatherer.exchange(gatherer);
  if ((before != nullptr) != (gatherer != nullptr)) count_gatherer(gatherer != nullptr);
}

Gatherer* gatherer_for(const c10::npu::NPUStream& /*stream*/, const Prepared& prepared) {
  if (sending || prepared.scratch_bytes() != 0 || detail::launches_are_observed.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  return own_gatherer != nullptr ? own_gatherer : common_gatherer.load();
}

SendingScope::SendingScope() : before_(std::exchange(sending, true)) {}
SendingScope::~SendingScope() { sending = before_; }

void send_command(std::unique_ptr<GatheredCommand> command) {
  const c10::npu::NPUStream stream = command->stream();
  const char* const ir = command->command().ir;
  c10::npu::launch(stream, ir, [command = std::move(command)](aclrtStream handle) { return command->execute(handle); });
}

}  // namespace at::native::npu
