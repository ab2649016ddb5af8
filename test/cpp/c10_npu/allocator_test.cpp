// The caching allocator of one device: blocks never overlap, streams stay apart, memory comes back.

#include <c10/npu/NPUGuard.h>
#include <c10/npu/impl/DeviceCachingAllocator.h>
#include <gtest/gtest.h>

#include "gate.h"

#include <algorithm>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace c10::npu::NPUCachingAllocator {
namespace {

class DeviceAllocator : public ::testing::Test {
 protected:
  void SetUp() override { activate_device(); }
  // What a test leaves cached would be missing in the next.
  void TearDown() override {
    device_synchronize();
    allocator.empty_cache(kPublicPool);
    EXPECT_EQ(allocator.totals(), std::pair(size_t{0}, size_t{0})) << "every test gives back what it took";
  }

  void* take(size_t bytes) { return allocator.malloc(bytes, getDefaultNPUStream()).ptr; }

  DeviceCachingAllocator allocator{0};
};

TEST_F(DeviceAllocator, RoundsAndHandsOutAgain) {
  const auto first = allocator.malloc(1, getDefaultNPUStream());
  EXPECT_EQ(first.size, 512U);
  EXPECT_EQ(allocator.free(first.ptr), 512U);
  EXPECT_EQ(take(300), first.ptr);
  EXPECT_EQ(allocator.free(first.ptr), 512U);
}

TEST_F(DeviceAllocator, RefusesAddressesThatAreNotItsOwn) {
  void* block = take(512);
  int local = 0;
  EXPECT_EQ(allocator.free(&local), 0U);
  EXPECT_EQ(allocator.free(static_cast<char*>(block) + 1), 0U);
  EXPECT_EQ(allocator.free(block), 512U);
  EXPECT_EQ(allocator.free(block), 0U) << "it is free already";
}

TEST_F(DeviceAllocator, JoinsWhatWasSplit) {
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(take(4096));
  const size_t reserved = allocator.totals().second;
  EXPECT_EQ(reserved, CachingAllocator::kSmallBuffer) << "one segment serves them all";
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  for (void* block : blocks) allocator.free(block);
  // A request for half the segment's bytes fits only if the pieces were joined.
  void* large = take(CachingAllocator::kSmallSize);
  EXPECT_EQ(allocator.totals().second, reserved);
  allocator.free(large);
}

TEST_F(DeviceAllocator, BlocksInUseNeverOverlap) {
  std::mt19937 random(7);
  std::map<uintptr_t, size_t> used;  // start -> bytes
  std::vector<void*> blocks;
  size_t in_use = 0;
  for (int step = 0; step < 4000; ++step) {
    if (blocks.empty() || (in_use < (size_t{24} << 20) && random() % 2 == 0)) {
      const size_t bytes = random() % 4 != 0 ? 1 + random() % 5000 : 1 + random() % (3 << 20);
      const auto [ptr, size, waited] = allocator.malloc(bytes, getDefaultNPUStream());
      const auto at = reinterpret_cast<uintptr_t>(ptr);
      ASSERT_GE(size, bytes);
      const auto next = used.lower_bound(at);
      ASSERT_TRUE(next == used.end() || at + size <= next->first);
      ASSERT_TRUE(next == used.begin() || std::prev(next)->first + std::prev(next)->second <= at);
      used[at] = size;
      in_use += size;
      blocks.push_back(ptr);
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const auto at = reinterpret_cast<uintptr_t>(blocks.back());
      ASSERT_EQ(allocator.free(blocks.back()), used[at]);
      in_use -= used[at];
      used.erase(at);
      blocks.pop_back();
    }
    ASSERT_EQ(allocator.totals().first, in_use);
  }
  for (void* block : blocks) allocator.free(block);
}

TEST_F(DeviceAllocator, StreamsHaveBlocksOfTheirOwn) {
  const NPUStream other = getStreamFromPool();
  void* mine = take(512);
  allocator.free(mine);
  const auto its = allocator.malloc(512, other);
  EXPECT_NE(its.ptr, mine);
  allocator.free(its.ptr);
}

TEST_F(DeviceAllocator, WaitsForStreamsThatUseABlock) {
  const NPUStream user = getStreamFromPool();
  void* block = take(512);
  {
    testing::Gate gate(user);
    EXPECT_TRUE(allocator.record_stream(block, user));
    allocator.free(block);
    void* next = take(512);
    EXPECT_NE(next, block) << "the other stream has not come past its use";
    allocator.free(next);
    gate.open();
    user.synchronize();
  }
  std::vector<void*> taken;
  for (int i = 0; i < 2; ++i) taken.push_back(take(512));
  EXPECT_TRUE(std::find(taken.begin(), taken.end(), block) != taken.end()) << "it is free now";
  for (void* ptr : taken) allocator.free(ptr);
}

TEST_F(DeviceAllocator, OutOfMemorySaysSoAndLeavesItUsable) {
  void* held = take(size_t{40} << 20);
  void* cached = take(size_t{20} << 20);
  allocator.free(cached);
  EXPECT_THROW(take(size_t{40} << 20), OutOfMemoryError);
  void* fits = take(size_t{22} << 20);  // only if what is cached goes back to the device
  allocator.free(fits);
  allocator.free(held);
}

TEST_F(DeviceAllocator, AFractionBoundsIt) {
  allocator.set_memory_fraction(0.25);
  EXPECT_THROW(take(size_t{20} << 20), OutOfMemoryError);
  void* fits = take(size_t{8} << 20);
  allocator.free(fits);
  EXPECT_EQ(allocator.memory_fraction(), 0.25);
}

TEST_F(DeviceAllocator, FindsSegments) {
  void* block = take(4096);
  void* second = take(4096);
  const auto segment = allocator.segment_of(second);
  ASSERT_TRUE(segment.has_value());
  EXPECT_EQ(segment->second, CachingAllocator::kSmallBuffer);
  EXPECT_EQ(allocator.segment_of(block), segment);
  EXPECT_FALSE(allocator.segment_of(&block).has_value());
  allocator.free(block);
  allocator.free(second);
}

TEST_F(DeviceAllocator, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([this, seed] {
      activate_device();
      std::mt19937 random(seed);
      std::vector<void*> blocks;
      for (int step = 0; step < 1500; ++step) {
        if (blocks.size() < 16 && random() % 2 == 0) {
          blocks.push_back(take(1 + random() % 20000));
        } else if (!blocks.empty()) {
          EXPECT_GT(allocator.free(blocks.back()), 0U);
          blocks.pop_back();
        }
      }
      for (void* block : blocks) allocator.free(block);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(allocator.totals().first, 0U);
}

TEST(AllocatorLock, LetsOneInAndItsHolderAgain) {
  AllocatorLock lock;
  int64_t counter = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int step = 0; step < 20000; ++step) {
        const std::lock_guard outer(lock);
        const std::lock_guard inner(lock);
        ++counter;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter, 60000);
}

}  // namespace
}  // namespace c10::npu::NPUCachingAllocator
