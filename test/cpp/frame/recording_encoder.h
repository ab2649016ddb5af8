#pragma once
// An encoder beside aclop's that only notes what it is given: it stands for an interface of two phases, which takes
// views as they are and asks for scratch memory.

#include <ATen/native/npu/frame/command/Encoder.h>

#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace at::native::npu::testing {

struct Recorded {
  std::vector<std::vector<int64_t>> dims, strides;
  std::vector<Memory> operands;
  void* scratch;
};

class RecordingEncoder final : public Encoder {
 public:
  static constexpr const char* kType = "RecordedByTheTest";
  static constexpr size_t kScratchBytes = 4096;

  static RecordingEncoder& instance() {
    static auto* encoder = new RecordingEncoder;
    return *encoder;
  }
  static void add() { add_encoder(instance()); }

  bool takes(const char* ir) const override { return std::strcmp(ir, kType) == 0; }
  bool takes_strides() const override { return true; }
  c10::intrusive_ptr<Prepared> prepare(uint64_t hash, c10::IntArrayRef key) const override;

  std::vector<Recorded> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(recorded_, {});
  }
  void note(Recorded recorded) {
    const std::lock_guard lock(mutex_);
    recorded_.push_back(std::move(recorded));
  }

 private:
  std::mutex mutex_;
  std::vector<Recorded> recorded_;
};

class RecordedCommand final : public Prepared {
 public:
  RecordedCommand(uint64_t hash, c10::IntArrayRef key) : Prepared(hash, key) {
    scratch_bytes_ = RecordingEncoder::kScratchBytes;
  }
  aclError execute(const Command& command, aclrtStream /*stream*/) const override {
    KeyReader reader(key());
    Recorded recorded;
    for (size_t i = 0; i < reader.operands(); ++i) {
      const KeyOperand operand = reader.next_operand();
      recorded.dims.push_back(operand.dims.vec());
      recorded.strides.push_back(operand.strides.vec());
      recorded.operands.push_back(command.operands[i]);
    }
    recorded.scratch = command.scratch;
    RecordingEncoder::instance().note(std::move(recorded));
    return ACL_SUCCESS;
  }
};

inline c10::intrusive_ptr<Prepared> RecordingEncoder::prepare(uint64_t hash, c10::IntArrayRef key) const {
  return c10::make_intrusive<RecordedCommand>(hash, key);
}

}  // namespace at::native::npu::testing
