// Device memory: the ranges it is cut from, its two mappings, and its bound.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "acl_session.h"
#include "core/device.h"
#include "core/ranges.h"

namespace acl_sim {
namespace {

using namespace testing;

TEST(Ranges, GiveTheSmallestThatFits) {
  Ranges ranges(0, 100);
  ASSERT_EQ(ranges.take(40), 0U);
  ASSERT_EQ(ranges.take(20), 40U);
  ASSERT_EQ(ranges.take(40), 60U);
  ranges.give(0, 40);
  ranges.give(60, 40);
  ranges.give(40, 20);  // joins all three
  EXPECT_EQ(ranges.take(100), 0U);
  EXPECT_EQ(ranges.take(1), std::nullopt);
}

TEST(Ranges, TakeAPlaceOnlyIfItIsFree) {
  Ranges ranges(10, 50);
  EXPECT_TRUE(ranges.take_at(20, 10));
  EXPECT_FALSE(ranges.take_at(25, 10));
  EXPECT_FALSE(ranges.take_at(5, 10)) << "not of this interval";
  EXPECT_TRUE(ranges.take_at(30, 20));
  EXPECT_EQ(ranges.take(10), 10U);
}

TEST(Ranges, NeverOverlapAndLoseNothing) {
  constexpr size_t kEnd = 10000;
  Ranges ranges(0, kEnd);
  std::map<size_t, size_t> taken;
  std::mt19937 random(3);
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 || taken.empty()) {
      const size_t size = 1 + random() % 400;
      const auto at = ranges.take(size);
      if (!at) continue;
      const auto next = taken.lower_bound(*at);
      ASSERT_LE(*at + size, next == taken.end() ? kEnd : next->first);
      ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= *at);
      taken[*at] = size;
    } else {
      auto victim = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      ranges.give(victim->first, victim->second);
      taken.erase(victim);
    }
  }
  for (const auto& [at, size] : taken) ranges.give(at, size);
  EXPECT_EQ(ranges.take(kEnd), 0U);
}

TEST(DeviceMemory, TheTwoMappingsAreTheSameMemory) {
  Device& device = acl_sim::device(0);
  DeviceMemory memory(4096);
  char* alias = device.alias(memory.get());
  EXPECT_TRUE(device.in_window(memory.get()));
  EXPECT_TRUE(device.in_alias(alias));
  EXPECT_FALSE(device.in_window(alias));
  EXPECT_EQ(device.window_address(alias), memory.get());
  EXPECT_EQ(device_of_alias(alias), &device);
  EXPECT_EQ(device_number_of(memory.get()), 0);
  EXPECT_EQ(device_number_of(alias), -1) << "no address that a host is given";
  std::fill_n(alias, 4096, 'x');
  char back[4096];
  fetch(back, memory.get(), sizeof back);
  EXPECT_EQ(std::count(back, back + sizeof back, 'x'), 4096);
}

TEST(DeviceMemory, DevicesHaveMemoryOfTheirOwn) {
  Device &first = acl_sim::device(0), &second = acl_sim::device(1);
  void* a = first.malloc(4096);
  void* b = second.malloc(4096);
  EXPECT_FALSE(second.in_window(a));
  EXPECT_FALSE(first.contains(b, 1));
  EXPECT_FALSE(second.free(a));
  EXPECT_TRUE(first.free(a));
  EXPECT_TRUE(second.free(b));
}

TEST(DeviceMemory, KnowsWhatIsAllocated) {
  Device& device = acl_sim::device(1);
  void* block = device.malloc(1000);
  char* begin = static_cast<char*>(block);
  EXPECT_TRUE(device.contains(block, 1000));
  EXPECT_TRUE(device.contains(begin + 500, 500));
  EXPECT_FALSE(device.contains(begin - 1, 2));
  EXPECT_FALSE(device.free(begin + 1)) << "not the start of a block";
  const uint64_t before = device.shrinks();
  EXPECT_TRUE(device.free(block));
  EXPECT_GT(device.shrinks(), before) << "ranges found before are no longer valid";
  EXPECT_FALSE(device.contains(block, 1));
  EXPECT_FALSE(device.free(block));
}

TEST(DeviceMemory, IsBounded) {
  Device& device = acl_sim::device(1);
  size_t free = 0, total = 0, peak = 0;
  device.memory_info(&free, &total, &peak);
  EXPECT_EQ(total, size_t{64} << 20);
  std::vector<void*> blocks;
  const auto fill = [&] {
    while (true) blocks.push_back(device.malloc(size_t{4} << 20));
  };
  EXPECT_ANY_THROW(fill());
  EXPECT_LE(blocks.size(), 16U);
  EXPECT_GE(blocks.size(), 14U);
  // Every other block: what is free is in pieces, and still serves a large request.
  for (size_t i = 0; i < blocks.size(); i += 2) EXPECT_TRUE(device.free(blocks[i]));
  void* large = device.malloc(size_t{20} << 20);
  EXPECT_TRUE(device.free(large));
  for (size_t i = 1; i < blocks.size(); i += 2) EXPECT_TRUE(device.free(blocks[i]));
}

}  // namespace
}  // namespace acl_sim
