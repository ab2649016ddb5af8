// Streams: order within one, independence of each other, errors, waits that end.

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "acl_session.h"
#include "core/stream.h"

namespace acl_sim {
namespace {

using namespace testing;

TEST(Stream, RunsTasksInOrder) {
  OwnStream stream;
  DeviceMemory memory(sizeof(int));
  for (int i = 0; i <= 5000; ++i) put(memory.get(), &i, sizeof i, stream);  // more than the ring holds
  ACL_OK(aclrtSynchronizeStream(stream));
  int last = -1;
  fetch(&last, memory.get(), sizeof last);
  EXPECT_EQ(last, 5000);
}

TEST(Stream, ManyThreadsSubmit) {
  OwnStream stream;
  constexpr size_t kThreads = 4, kEach = 1500;
  DeviceMemory memory(kThreads * sizeof(int));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_ACL_OK(aclrtSetDevice(0));
      for (size_t i = 1; i <= kEach; ++i) {
        const int value = static_cast<int>(t * kEach + i);
        put(memory.at(t * sizeof(int)), &value, sizeof value, stream);
        if (i % 100 == 0) {
          EXPECT_ACL_OK(aclrtSynchronizeStream(stream));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ACL_OK(aclrtSynchronizeStream(stream));
  int values[kThreads];
  fetch(values, memory.get(), sizeof values);
  for (size_t t = 0; t < kThreads; ++t) EXPECT_EQ(values[t], static_cast<int>((t + 1) * kEach));
}

TEST(Stream, OperatorsAndCopiesKeepTheOrder) {
  OwnStream stream;
  for (const int64_t elements : {4, 300000}) {  // at once on this thread, and by the worker
    const size_t bytes = static_cast<size_t>(elements) * sizeof(float);
    DeviceMemory a(bytes), b(bytes);
    const std::vector<float> ones(static_cast<size_t>(elements), 1);
    put(a.get(), ones.data(), bytes, stream);
    put(b.get(), ones.data(), bytes, stream);
    for (int i = 0; i < 20; ++i) EXPECT_ACL_OK(launch("Add", {elements}, {a.get(), b.get(), a.get()}, stream));
    ACL_OK(aclrtSynchronizeStream(stream));
    std::vector<float> result(static_cast<size_t>(elements));
    fetch(result.data(), a.get(), bytes);
    EXPECT_EQ(result.front(), 21);
    EXPECT_EQ(result.back(), 21);
  }
}

TEST(Stream, TwoStreamsThatWaitForEachOthersEvents) {
  OwnStream first, second;
  OwnEvent ping, pong;
  DeviceMemory a(sizeof(int)), b(sizeof(int));
  for (int i = 0; i < 200; ++i) {
    put(a.get(), &i, sizeof i, first);
    ACL_OK(aclrtRecordEvent(ping, first));
    ACL_OK(aclrtStreamWaitEvent(second, ping));
    ACL_OK(aclrtMemcpyAsync(b.get(), sizeof(int), a.get(), sizeof(int), ACL_MEMCPY_DEVICE_TO_DEVICE, second));
    ACL_OK(aclrtRecordEvent(pong, second));
    ACL_OK(aclrtStreamWaitEvent(first, pong));  // so that `a` is not written before it was read
  }
  ACL_OK(aclrtSynchronizeStream(second));
  int last = -1;
  fetch(&last, b.get(), sizeof last);
  EXPECT_EQ(last, 199);
}

TEST(Stream, AnErrorIsTakenOnce) {
  OwnStream handle;
  Stream& stream = stream_of(handle);
  stream.set_error(ACL_ERROR_RT_AICORE_EXCEPTION, "first", nullptr);
  stream.set_error(ACL_ERROR_RT_WAIT_TIMEOUT, "second", nullptr);
  std::string text;
  EXPECT_EQ(stream.take_error(&text), ACL_ERROR_RT_AICORE_EXCEPTION);
  EXPECT_NE(text.find("first"), std::string::npos);
  EXPECT_EQ(stream.take_error(&text), ACL_SUCCESS);
}

TEST(Stream, AWaitThatTakesTooLongGivesUp) {
  OwnStream idle;
  Stream& stream = stream_of(idle);
  EXPECT_TRUE(stream.wait(stream.last_submitted(), 0)) << "an idle stream is waited for at once";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(stream.wait(stream.last_submitted() + 1, 30)) << "nobody submits that task";
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(30));
}

TEST(Stream, HandlesThatAreGoneAreRefused) {
  aclrtStream handle = nullptr;
  ACL_OK(aclrtCreateStream(&handle));
  ACL_OK(aclrtDestroyStream(handle));
  EXPECT_NE(aclrtSynchronizeStream(handle), ACL_SUCCESS);
  EXPECT_NE(aclrtDestroyStream(handle), ACL_SUCCESS);
  int local = 0;
  EXPECT_NE(aclrtSynchronizeStream(&local), ACL_SUCCESS) << "any address can be checked";
}

TEST(Stream, MarksPassWhenWhatWasQueuedHasRun) {
  OwnStream stream;
  DeviceMemory memory(1 << 20);
  ACL_OK(aclrtMemsetAsync(memory.get(), 1 << 20, 1, 1 << 20, stream));
  const auto marks = mark_streams();
  ACL_OK(aclrtSynchronizeStream(stream));
  EXPECT_TRUE(have_passed(marks));
}

}  // namespace
}  // namespace acl_sim
