#pragma once
// A stream that stands still until a test lets it go on: a task of it waits on the device.

#include <acl_loader.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUTaskQueue.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace c10::npu::testing {

class Gate {
 public:
  // Everything put on the stream from now on waits for open().
  explicit Gate(const NPUStream& stream) : stream_(stream) {
    reporter_ = std::thread([this] {
      NPU_CHECK(acl::aclrtSetDevice(stream_.device_index()));
      while (!reported_) acl::aclrtProcessReport(/*timeout=*/20);
    });
    id_ = static_cast<uint64_t>(reporter_.native_handle());
    drain_task_queue(stream.device_index());
    NPU_CHECK(acl::aclrtSubscribeReport(id_, stream.stream()));
    NPU_CHECK(acl::aclrtLaunchCallback(&wait, this, ACL_CALLBACK_BLOCK, stream.stream()));
  }
  ~Gate() {
    open();
    drain_task_queue(stream_.device_index(), /*raise=*/false);
    acl::aclrtSynchronizeStream(stream_.stream());
    reported_ = true;
    reporter_.join();
    acl::aclrtUnSubscribeReport(id_, stream_.stream());
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() { is_open_ = true; }

 private:
  static void wait(void* self) {
    while (!static_cast<Gate*>(self)->is_open_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  NPUStream stream_;
  std::thread reporter_;
  uint64_t id_ = 0;
  std::atomic<bool> is_open_{false};
  std::atomic<bool> reported_{false};
};

}  // namespace c10::npu::testing
