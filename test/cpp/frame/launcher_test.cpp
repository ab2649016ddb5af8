// The launcher: what observers are told, how they nest, and an encoder beside the first.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/command/Launcher.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <c10/npu/NPUFunctions.h>
#include <gtest/gtest.h>

#include "recording_encoder.h"

#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace at::native::npu {
namespace {

using testing::RecordingEncoder;

Tensor on_npu(const Tensor& t) { return t.to(Device(kPrivateUse1, 0)); }

void finish() { c10::npu::device_synchronize(); }

// Notes what it is told, in one list for all observers of a test.
class Notes : public LaunchObserver {
 public:
  struct Log {
    std::mutex mutex;
    std::vector<std::string> lines;
    std::vector<uint64_t> called, executed;
    std::vector<std::thread::id> called_on, executed_on;
  };
  Notes(Log& log, std::string name, bool executes = true) : log_(log), name_(std::move(name)), executes_(executes) {}

  void called(const Command& command, const c10::npu::NPUStream& /*stream*/) override {
    const std::lock_guard lock(log_.mutex);
    log_.lines.push_back(name_ + " called " + command.ir);
    log_.called.push_back(command.correlation);
    log_.called_on.push_back(std::this_thread::get_id());
  }
  aclError execute(const Command& command, aclrtStream /*stream*/, c10::function_ref<aclError()> next) override {
    {
      const std::lock_guard lock(log_.mutex);
      log_.lines.push_back(name_ + " before " + command.ir);
      log_.executed.push_back(command.correlation);
      log_.executed_on.push_back(std::this_thread::get_id());
    }
    const aclError code = executes_ ? next() : ACL_SUCCESS;
    const std::lock_guard lock(log_.mutex);
    log_.lines.push_back(name_ + " after " + command.ir);
    return code;
  }

 private:
  Log& log_;
  std::string name_;
  bool executes_;
};

class Observed : public ::testing::Test {
 protected:
  void SetUp() override {
    a = on_npu(at::ones({2, 3}));
    warm = a + a;  // what belongs to the first launch of a process is over
    finish();
  }
  void TearDown() override {
    finish();
    for (const auto& observer : added) remove_launch_observer(observer.get());
  }
  void observe(const std::string& name, LaunchPlace place, bool executes = true) {
    added.push_back(std::make_shared<Notes>(log, name, executes));
    add_launch_observer(added.back(), place);
  }

  Notes::Log log;
  std::vector<std::shared_ptr<LaunchObserver>> added;
  Tensor a, warm;
};

TEST_F(Observed, NobodyIsToldAfterRemoval) {
  observe("o", LaunchPlace::kProfile);
  remove_launch_observer(added.back().get());
  const Tensor sum = a + a;
  finish();
  EXPECT_TRUE(log.lines.empty());
}

TEST_F(Observed, ObserversNestByPlaceNotByTheOrderOfTheirAddition) {
  observe("inner", LaunchPlace::kOverflowCheck);
  observe("outer", LaunchPlace::kProfile);
  const Tensor sum = a + a;
  finish();
  EXPECT_EQ(log.lines, (std::vector<std::string>{"outer called Add", "inner called Add", "outer before Add",
                                                 "inner before Add", "inner after Add", "outer after Add"}));
  EXPECT_TRUE(at::equal(sum.cpu(), at::full({2, 3}, 2.0F)));
}

TEST_F(Observed, AddingTwiceTellsOnce) {
  observe("o", LaunchPlace::kProfile);
  add_launch_observer(added.back(), LaunchPlace::kProfile);
  const Tensor sum = a + a;
  finish();
  EXPECT_EQ(log.lines.size(), 3U);
}

TEST_F(Observed, TheShortWayAndOpCommandAreToldAlike) {
  observe("o", LaunchPlace::kProfile);
  const Tensor sum = a + a;                          // operands alike: PlainLaunch
  const Tensor product = a * on_npu(at::ones({3}));  // broadcast: OpCommand
  finish();
  ASSERT_EQ(log.called.size(), 2U);
  EXPECT_LT(log.called[0], log.called[1]);
  EXPECT_EQ(log.called, log.executed) << "a command has one correlation id";
}

TEST_F(Observed, CalledOnTheCallersThreadExecutedOnTheQueues) {
  observe("o", LaunchPlace::kProfile);
  const Tensor sum = a + a;
  finish();
  ASSERT_EQ(log.called_on.size(), 1U);
  EXPECT_EQ(log.called_on[0], std::this_thread::get_id());
  EXPECT_NE(log.executed_on[0], std::this_thread::get_id());
}

TEST_F(Observed, ACaptureExecutesNothing) {
  Tensor sum = a + a;
  finish();
  {
    const auto capture = std::make_shared<Notes>(log, "capture", /*executes=*/false);
    add_launch_observer(capture, LaunchPlace::kCapture);
    sum.add_(a);
    finish();
    remove_launch_observer(capture.get());
  }
  EXPECT_EQ(log.executed.size(), 1U);
  EXPECT_TRUE(at::equal(sum.cpu(), at::full({2, 3}, 2.0F))) << "the addition was recorded, not run";
}

TEST_F(Observed, TheKeyTellsAnObserverWhatIsLaunched) {
  struct Reader : LaunchObserver {
    std::vector<int64_t> dims;
    aclDataType dtype = ACL_DT_UNDEFINED;
    void called(const Command& command, const c10::npu::NPUStream& /*stream*/) override {
      KeyReader reader(command.prepared->key());
      const KeyOperand first = reader.next_operand();
      dims = first.dims.vec();
      dtype = first.dtype;
    }
  };
  const auto reader = std::make_shared<Reader>();
  added.push_back(reader);
  add_launch_observer(reader, LaunchPlace::kProfile);
  const Tensor sum = a + a;
  finish();
  EXPECT_EQ(reader->dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(reader->dtype, ACL_FLOAT);
}

TEST_F(Observed, ObserversComeAndGoWhileThreadsLaunch) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) static_cast<void>(a + a);
    });
  }
  for (int i = 0; i < 200; ++i) {
    const auto observer = std::make_shared<Notes>(log, "o");
    add_launch_observer(observer, LaunchPlace::kProfile);
    remove_launch_observer(observer.get());
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

TEST(Encoders, OneThatTakesStridesGetsViewsAsTheyAre) {
  const Tensor a = on_npu(at::ones({4, 6})), out = at::empty({6, 4}, a.options());
  const Tensor view = a.t();
  OpCommand().Name(RecordingEncoder::kType).Elementwise().Input(view).Output(out.t().t()).Run();
  finish();
  const auto recorded = RecordingEncoder::instance().take();
  ASSERT_EQ(recorded.size(), 1U);
  EXPECT_EQ(recorded[0].dims[0], (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(recorded[0].strides[0], (std::vector<int64_t>{1, 6}));
  EXPECT_EQ(recorded[0].operands[0].data, a.data_ptr()) << "nothing was copied";
  EXPECT_EQ(recorded[0].operands[0].bytes, 24 * sizeof(float));
  EXPECT_TRUE(recorded[0].strides[1].empty());
  EXPECT_EQ(recorded[0].operands[1].data, out.data_ptr());
}

TEST(Encoders, OneThatTakesStridesWritesIntoViews) {
  const Tensor base = on_npu(at::ones({4, 6})), a = on_npu(at::ones({4, 3}));
  const Tensor view = base.slice(1, 1, 6, 2);
  OpCommand().Name(RecordingEncoder::kType).Input(a).Output(view).Run();
  finish();
  const auto recorded = RecordingEncoder::instance().take();
  ASSERT_EQ(recorded.size(), 1U);
  EXPECT_EQ(recorded[0].strides[1], (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(recorded[0].operands[1].data, static_cast<float*>(base.data_ptr()) + 1);
  EXPECT_EQ(recorded[0].operands[1].bytes, (3 * 6 + 2 * 2 + 1) * sizeof(float));
}

TEST(Encoders, TheLauncherGivesScratchMemory) {
  const Tensor a = on_npu(at::ones({4}));
  OpCommand().Name(RecordingEncoder::kType).Input(a).Output(a).Run();
  finish();
  const auto recorded = RecordingEncoder::instance().take();
  ASSERT_EQ(recorded.size(), 1U);
  EXPECT_NE(recorded[0].scratch, nullptr);
  EXPECT_NE(recorded[0].scratch, a.data_ptr());
}

TEST(Encoders, AreNotAddedOnceOperatorsWerePrepared) {
  static_cast<void>(on_npu(at::ones({1})) + 1);
  EXPECT_THROW(RecordingEncoder::add(), c10::Error);
}

}  // namespace
}  // namespace at::native::npu
