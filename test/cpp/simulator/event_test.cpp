// Events: generations of records, time stamps, waits.

#include <gtest/gtest.h>

#include <thread>

#include "acl_session.h"
#include "core/event.h"

namespace acl_sim {
namespace {

using namespace testing;

aclrtEventRecordedStatus status_of(aclrtEvent event) {
  aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  EXPECT_ACL_OK(aclrtQueryEventStatus(event, &status));
  return status;
}

TEST(Event, IsCompleteOnceItsLatestRecordHasRun) {
  Event* event = create_event(0);
  EXPECT_TRUE(event->complete()) << "never recorded";
  event->recorded = 2;
  EXPECT_FALSE(event->complete());
  event->complete_record(1);
  EXPECT_FALSE(event->complete()) << "a second record is under way";
  EXPECT_TRUE(event->complete(1)) << "who waited for the first may go on";
  event->complete_record(2);
  EXPECT_TRUE(event->complete());
  event->complete_record(1);  // a stream that comes late
  EXPECT_TRUE(event->complete(2));
  event->alive = false;
  release_event(event);
}

TEST(Event, IsUsedAgainAsNew) {
  Event* first = create_event(0);
  first->recorded = 5;
  first->complete_record(5);
  first->alive = false;
  release_event(first);
  Event* second = create_event(0);
  EXPECT_EQ(second->recorded, 0U);
  EXPECT_EQ(second->completed, 0U);
  EXPECT_EQ(second->time_ns, 0);
  second->alive = false;
  release_event(second);
}

TEST(Event, AReferenceKeepsItForQueuedTasks) {
  Event* event = create_event(0);
  event->references.fetch_add(1);
  event->alive = false;
  release_event(event);  // the caller's
  Event* other = create_event(0);
  EXPECT_NE(other, event) << "a task still has it";
  release_event(event);
  other->alive = false;
  release_event(other);
}

TEST(Event, TimesAreInOrder) {
  OwnStream stream;
  OwnEvent begin, end;
  ACL_OK(aclrtRecordEvent(begin, stream));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ACL_OK(aclrtRecordEvent(end, stream));
  ACL_OK(aclrtSynchronizeEvent(end));
  float milliseconds = -1;
  ACL_OK(aclrtEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 5);
  EXPECT_EQ(status_of(end), ACL_EVENT_RECORDED_STATUS_COMPLETE);
}

TEST(Event, ManyThreadsWaitForOne) {
  OwnStream stream;
  OwnEvent event;
  DeviceMemory memory(1 << 20);
  ACL_OK(aclrtMemsetAsync(memory.get(), 1 << 20, 1, 1 << 20, stream));
  ACL_OK(aclrtRecordEvent(event, stream));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      EXPECT_ACL_OK(aclrtSetDevice(0));
      EXPECT_ACL_OK(aclrtSynchronizeEvent(event));
      EXPECT_EQ(status_of(event), ACL_EVENT_RECORDED_STATUS_COMPLETE);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace acl_sim
