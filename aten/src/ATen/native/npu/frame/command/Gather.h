#pragma once
// Commands that are kept on the host instead of being sent, see Note [Gathered commands] in c10/npu/NPUTaskQueue.h.

#include <ATen/native/npu/frame/command/Encoder.h>
#include <c10/npu/NPUStream.h>

#include <memory>

namespace at::native::npu {

// A command that nobody has sent yet. It owns its host values; memory of tensors may have been freed since the call,
// and belong to the results of later commands.
class GatheredCommand {
 public:
  explicit GatheredCommand(const c10::npu::NPUStream& stream) : stream_(stream) {}
  virtual ~GatheredCommand() = default;
  GatheredCommand(const GatheredCommand&) = delete;
  GatheredCommand& operator=(const GatheredCommand&) = delete;

  virtual Command command() const = 0;
  // Its memory, for whoever finds the same values elsewhere.
  virtual Memory* operands() = 0;
  virtual aclError execute(aclrtStream stream) const = 0;
  const c10::npu::NPUStream& stream() const { return stream_; }

 private:
  c10::npu::NPUStream stream_;
};

class Gatherer {
 public:
  virtual ~Gatherer() = default;
  virtual void take(std::unique_ptr<GatheredCommand> command) = 0;
  // Sends what it has; from any thread.
  virtual void send() = 0;
};

// Commands of the calling thread go to this one; null ends that. Returns the one before.
Gatherer* gather_own_commands(Gatherer* gatherer);
// Commands of all threads whose own go to nobody; null ends that.
void gather_all_commands(Gatherer* gatherer);

// Who takes the next command of this thread; null if it is to be sent. While launches are observed everything is.
Gatherer* gatherer_for(const c10::npu::NPUStream& stream, const Prepared& prepared);

// While one exists, its thread's commands are sent, and nothing that is gathered is sent for them.
class SendingScope {
 public:
  SendingScope();
  ~SendingScope();
  SendingScope(const SendingScope&) = delete;
  SendingScope& operator=(const SendingScope&) = delete;

 private:
  bool before_;
};

// Puts a gathered command on its stream.
void send_command(std::unique_ptr<GatheredCommand> command);

}  // namespace at::native::npu
