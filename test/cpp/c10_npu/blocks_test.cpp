// The allocator's books: order of free blocks, hot blocks, blocks by address.

#include <c10/npu/impl/Blocks.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace c10::npu::NPUCachingAllocator {
namespace {

NPUStream stream(StreamId id) { return NPUStream(Stream(Stream::UNSAFE, Device(DeviceType::PrivateUse1, 0), id)); }

void* address(uintptr_t at) { return reinterpret_cast<void*>(at); }

TEST(BlockPool, GivesTheSmallestBlockOfTheStreamThatIsLargeEnough) {
  BlockPool pool(/*is_small=*/true);
  Block small(stream(0), 512, &pool, address(0x1000)), large(stream(0), 2048, &pool, address(0x2000));
  Block other(stream(3), 1024, &pool, address(0x3000));
  for (Block* block : {&large, &other, &small}) pool.insert(block);
  const Block wanted(stream(0), 1024, nullptr, nullptr);
  const auto found = pool.blocks.lower_bound(const_cast<Block*>(&wanted));
  ASSERT_NE(found, pool.blocks.end());
  EXPECT_EQ(*found, &large);
}

TEST(BlockPool, UsesItsNodesAgain) {
  BlockPool pool(/*is_small=*/true);
  Block block(stream(0), 512, &pool, address(0x1000));
  for (int turn = 0; turn < 3; ++turn) {
    pool.insert(&block);
    EXPECT_EQ(pool.blocks.size(), 1U);
    EXPECT_TRUE(pool.spare.empty());
    pool.erase(&block);
    EXPECT_TRUE(pool.blocks.empty());
    EXPECT_EQ(pool.spare.size(), 1U);
  }
}

TEST(HotBlocks, GiveTheLastOneOfTheSizeFirst) {
  BlockPool pool(/*is_small=*/true);
  HotBlocks hot;
  Block first(stream(0), 1024, &pool, address(0x1000)), second(stream(0), 1024, &pool, address(0x2000));
  ASSERT_TRUE(hot.keep(&first));
  ASSERT_TRUE(hot.keep(&second));
  EXPECT_EQ(hot.take(512, stream(0)), nullptr);
  EXPECT_EQ(hot.take(1024, stream(0)), &second);
  EXPECT_FALSE(second.hot);
  EXPECT_EQ(hot.take(1024, stream(0)), &first);
  EXPECT_EQ(hot.take(1024, stream(0)), nullptr);
}

TEST(HotBlocks, KeepStreamsApart) {
  BlockPool pool(/*is_small=*/true);
  HotBlocks hot;
  Block mine(stream(0), 1024, &pool, address(0x1000)), other(stream(3), 1024, &pool, address(0x2000));
  ASSERT_TRUE(hot.keep(&mine));
  EXPECT_FALSE(hot.keep(&other)) << "a list holds blocks of one stream";
  EXPECT_EQ(hot.take(1024, stream(3)), nullptr);
  EXPECT_EQ(hot.take(1024, stream(0)), &mine);
}

TEST(HotBlocks, TakeNoLargeBlocksAndFewOfASize) {
  BlockPool small(/*is_small=*/true), large(/*is_small=*/false);
  HotBlocks hot;
  Block from_large(stream(0), 1024, &large, address(0x1000)), too_large(stream(0), 128 << 10, &small, address(0x2000));
  EXPECT_FALSE(hot.keep(&from_large));
  EXPECT_FALSE(hot.keep(&too_large));
  std::vector<Block> blocks;
  for (uintptr_t i = 0; i < 64; ++i) blocks.emplace_back(stream(0), 512, &small, address(0x10000 + 512 * i));
  size_t kept = 0;
  for (Block& block : blocks) kept += hot.keep(&block) ? 1 : 0;
  EXPECT_GT(kept, 0U);
  EXPECT_LT(kept, blocks.size());
  std::set<Block*> seen;
  hot.take_all([&](Block* block) { EXPECT_TRUE(seen.insert(block).second); });
  EXPECT_EQ(seen.size(), kept);
  hot.take_all([&](Block*) { ADD_FAILURE() << "all were taken"; });
}

TEST(BlockAddresses, FindAllocatedBlocksOnly) {
  BlockPool pool(/*is_small=*/true);
  BlockAddresses addresses;
  Block block(stream(0), 512, &pool, address(0x1000));
  EXPECT_EQ(addresses.find(block.ptr), nullptr);
  addresses.remember(&block);
  EXPECT_EQ(addresses.find(block.ptr), nullptr) << "it is free";
  block.allocated = true;
  EXPECT_EQ(addresses.find(block.ptr), &block);
  EXPECT_EQ(addresses.find(address(0x1200)), nullptr) << "not its start";
  addresses.forget(&block);
  EXPECT_EQ(addresses.find(block.ptr), nullptr);
}

TEST(BlockAddresses, TellApartThoseThatShareAPlaceInTheTable) {
  BlockPool pool(/*is_small=*/true);
  BlockAddresses addresses;
  std::vector<std::unique_ptr<Block>> blocks;
  for (uintptr_t i = 1; i <= 2000; ++i) {
    blocks.push_back(std::make_unique<Block>(stream(0), 512, &pool, address(512 * i)));
    blocks.back()->allocated = true;
    addresses.remember(blocks.back().get());
  }
  for (const auto& block : blocks) EXPECT_EQ(addresses.find(block->ptr), block.get());
}

}  // namespace
}  // namespace c10::npu::NPUCachingAllocator
