// The ring of a stream's queued tasks.

#include <gtest/gtest.h>

#include <thread>

#include "core/task_ring.h"

namespace acl_sim {
namespace {

Task numbered(uint64_t id) {
  Task task{};
  task.id = id;
  task.kind = TaskKind::Fill;
  task.copy.value = static_cast<int>(id % 251);
  return task;
}

TEST(TaskRing, HasWhatWasPutAndNothingElse) {
  TaskRing ring;
  EXPECT_FALSE(ring.has(1)) << "it has no slots yet";
  ring.make();
  ring.make();
  EXPECT_FALSE(ring.has(1));
  ring.put(numbered(2));
  EXPECT_FALSE(ring.has(1)) << "numbers may come out of order";
  EXPECT_TRUE(ring.has(2));
  ring.put(numbered(1));
  EXPECT_TRUE(ring.has(1));
  EXPECT_EQ(ring.task(2).copy.value, 2);
}

TEST(TaskRing, ASlotIsUsedAgain) {
  TaskRing ring;
  ring.make();
  for (uint64_t id = 1; id <= 3 * TaskRing::kSize; ++id) {
    EXPECT_FALSE(ring.has(id));
    ring.put(numbered(id));
    ASSERT_TRUE(ring.has(id));
    ASSERT_EQ(ring.task(id).id, id);
  }
  EXPECT_FALSE(ring.has(1)) << "another task lies there now";
}

TEST(TaskRing, AReaderSeesWholeTasks) {
  TaskRing ring;
  ring.make();
  constexpr uint64_t kTasks = TaskRing::kSize;
  std::thread writer([&] {
    for (uint64_t id = 1; id <= kTasks; ++id) ring.put(numbered(id));
  });
  for (uint64_t id = 1; id <= kTasks; ++id) {
    while (!ring.has(id)) std::this_thread::yield();
    ASSERT_EQ(ring.task(id).copy.value, static_cast<int>(id % 251));
  }
  writer.join();
}

}  // namespace
}  // namespace acl_sim
