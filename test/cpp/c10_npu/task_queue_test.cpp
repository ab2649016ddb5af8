// The queue's thread: tasks run in the order of calls, errors come at the next call, what tasks own is dropped outside.

#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUEvent.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUTaskQueue.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace c10::npu {
namespace {

// A task that stands in the queue until it is let go.
class Plug {
 public:
  void put(const NPUStream& stream) {
    launch(stream, "Plug", [this](aclrtStream) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_open_; });
      return ACL_SUCCESS;
    });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

TEST(TaskQueue, RunsTasksOfAllStreamsInTheOrderOfCalls) {
  const NPUStream a = getDefaultNPUStream(0), b = getStreamFromPool(false, 0);
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    launch(i % 3 == 0 ? b : a, "Note", [&order, i](aclrtStream) {
      order.push_back(i);
      return ACL_SUCCESS;
    });
  }
  drain_task_queue(0);
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(TaskQueue, RunsOnAThreadOfItsOwn) {
  std::thread::id where;
  launch(getDefaultNPUStream(0), "Note", [&](aclrtStream) {
    where = std::this_thread::get_id();
    return ACL_SUCCESS;
  });
  drain_task_queue(0);
  EXPECT_NE(where, std::thread::id());
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(TaskQueue, ATaskGetsTheHandleOfItsStream) {
  const NPUStream stream = getStreamFromPool(false, 0);
  aclrtStream given = nullptr;
  launch(stream, "Note", [&](aclrtStream handle) {
    given = handle;
    return ACL_SUCCESS;
  });
  drain_task_queue(0);
  EXPECT_EQ(given, stream.stream());
}

TEST(TaskQueue, AnErrorComesWithTheNextCallAndOnce) {
  const NPUStream stream = getDefaultNPUStream(0);
  bool later = false;
  launch(stream, "Broken", [](aclrtStream) { return ACL_ERROR_INVALID_PARAM; });
  try {
    launch(stream, "Later", [&](aclrtStream) {
      later = true;
      return ACL_SUCCESS;
    });
    drain_task_queue(0);
    FAIL() << "the error was lost";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("Broken"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("TASK_QUEUE_ENABLE"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(drain_task_queue(0));
  // The later one was queued or not, as the error came before its call or after; the queue goes on.
  later = false;
  launch(stream, "Later", [&](aclrtStream) {
    later = true;
    return ACL_SUCCESS;
  });
  drain_task_queue(0);
  EXPECT_TRUE(later);
}

TEST(TaskQueue, AnExceptionIsAnErrorToo) {
  launch(getDefaultNPUStream(0), "Throws", [](aclrtStream) -> aclError { throw std::runtime_error("out of luck"); });
  EXPECT_THROW(drain_task_queue(0), c10::Error);
  EXPECT_NO_THROW(drain_task_queue(0));
}

TEST(TaskQueue, DrainingWithoutRaisingKeepsTheError) {
  launch(getDefaultNPUStream(0), "Broken", [](aclrtStream) { return ACL_ERROR_INVALID_PARAM; });
  EXPECT_NO_THROW(drain_task_queue(0, /*raise=*/false));
  EXPECT_THROW(drain_task_queue(0), c10::Error);
}

TEST(TaskQueue, AProducerThatIsFarAheadWaits) {
  Plug plug;
  std::atomic<int> queued{0};
  const NPUStream stream = getDefaultNPUStream(0);
  plug.put(stream);
  std::thread producer([&] {
    for (int i = 0; i < 6000; ++i) {
      launch(stream, "Note", [](aclrtStream) { return ACL_SUCCESS; });
      ++queued;
    }
  });
  for (int before = -1; before != queued;) {
    before = queued;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_GT(queued, 0);
  EXPECT_LT(queued, 6000);
  plug.open();
  producer.join();
  drain_task_queue(0);
  EXPECT_EQ(queued, 6000);
}

TEST(TaskQueue, WhatATaskOwnsIsDroppedByThreadsThatLaunch) {
  // A task may own what needs a lock that the launching thread has: the queue's thread must not destroy it.
  struct Owned {
    explicit Owned(std::thread::id* where) : where(where) {}
    ~Owned() { *where = std::this_thread::get_id(); }
    std::thread::id* where;
  };
  std::thread::id dropped;
  auto owned = std::make_shared<Owned>(&dropped);
  launch(getDefaultNPUStream(0), "Owner", [owned = std::move(owned)](aclrtStream) { return ACL_SUCCESS; });
  drain_task_queue(0);
  detail::drop_finished_tasks(0);
  EXPECT_EQ(dropped, std::this_thread::get_id());
}

TEST(TaskQueue, DevicesHaveQueuesOfTheirOwn) {
  Plug plug;
  plug.put(getDefaultNPUStream(0));
  bool ran = false;
  {
    const NPUGuard guard(1);
    launch(getDefaultNPUStream(1), "Note", [&](aclrtStream) {
      ran = true;
      return ACL_SUCCESS;
    });
    drain_task_queue(1);
  }
  EXPECT_TRUE(ran);
  EXPECT_EQ(current_device(), 0);
  plug.open();
  drain_task_queue(0);
}

TEST(TaskQueue, EventsAndCopiesKeepTheOrder) {
  const NPUStream stream = getDefaultNPUStream(0);
  set_device(0, /*force=*/true);
  void* memory = NPUCachingAllocator::raw_alloc(sizeof(int));
  for (int value = 1; value <= 50; ++value) {
    memcpy_async(memory, &value, sizeof value, ACL_MEMCPY_HOST_TO_DEVICE, stream);
    NPUEvent event;
    event.record(stream);
    event.synchronize();
    int back = 0;
    memcpy_and_sync(&back, memory, sizeof back, ACL_MEMCPY_DEVICE_TO_HOST, stream);
    ASSERT_EQ(back, value);
  }
  NPUCachingAllocator::raw_delete(memory);
}

TEST(TaskQueue, ManyThreadsLaunch) {
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        launch(getDefaultNPUStream(0), "Note", [&](aclrtStream) {
          ++ran;
          return ACL_SUCCESS;
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  drain_task_queue(0);
  EXPECT_EQ(ran, 2000);
}

}  // namespace
}  // namespace c10::npu
