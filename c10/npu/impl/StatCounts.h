#pragma once
// Counting in the allocator's statistics: each is kept for everything and for the kind of pool that it concerns.

#include <c10/npu/impl/Blocks.h>

namespace c10::npu::NPUCachingAllocator {

[[gnu::always_inline]] inline void increase(StatArray& stat, const BlockPool& pool, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].increase(amount);
  stat[static_cast<size_t>(pool.is_small ? StatType::SMALL_POOL : StatType::LARGE_POOL)].increase(amount);
}

[[gnu::always_inline]] inline void decrease(StatArray& stat, const BlockPool& pool, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].decrease(amount);
  stat[static_cast<size_t>(pool.is_small ? StatType::SMALL_POOL : StatType::LARGE_POOL)].decrease(amount);
}

}  // namespace c10::npu::NPUCachingAllocator
