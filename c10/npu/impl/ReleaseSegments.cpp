// Giving cached memory back to the device.

#include <c10/npu/impl/DeviceCachingAllocator.h>

#include <acl_loader.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUTaskQueue.h>
#include <c10/npu/impl/StatCounts.h>
#include <c10/npu/impl/Trace.h>

#include <algorithm>
#include <limits>

namespace c10::npu::NPUCachingAllocator {

using Config = CachingAllocator::AcceleratorAllocatorConfig;

void DeviceCachingAllocator::synchronize() {
  const NPUGuard guard(device_);
  impl::synchronize_untraced();
}

void DeviceCachingAllocator::release_segment(Block* block) {
  if (C10_UNLIKELY(block->expandable != nullptr)) {
    release_pages(block);
    return;
  }
  BlockPool& pool = *block->pool;
  if (pool.owner != nullptr && pool.owner->source != nullptr) {
    pool.owner->source->raw_delete(block->ptr);
  } else {
    NPU_CHECK(acl::aclrtFree(block->ptr));
  }
  if (history_enabled_) {
    trace_event(TraceEntry::SEGMENT_FREE, block->ptr, block->size, block->stream, id_of(pool), block->segment_context);
  }
  pool.erase(block);
  segments_.erase(block->ptr);
  count_given_back(pool, block->size);
  decrease(stats_.segment, pool, 1);
  if (block->size >= max_split_size()) {
    stats_.oversize_segments.decrease(1);
  }
  addresses_.forget(block);
  destroy_block(block);
}

// With a bound on splitting: gives back oversize blocks of the stream, as few as make room for `size`.
bool DeviceCachingAllocator::release_for(BlockPool& pool, size_t size, const NPUStream& stream) {
  const size_t max_split = max_split_size();
  if (max_split == std::numeric_limits<size_t>::max()) {
    return false;
  }
  synchronize();  // first, since it may drop tensors and so change the pool
  Block key(stream, std::max(size, max_split), nullptr, nullptr);
  const auto same_stream = [&](auto it) { return it != pool.blocks.end() && (*it)->stream.id() == stream.id(); };
  auto it = pool.blocks.lower_bound(&key);
  if (same_stream(it) && !(*it)->is_split()) {
    release_segment(*it);
    return true;
  }
  size_t released = 0;
  while (released < size && it != pool.blocks.begin()) {
    it = std::prev(it);
    if (!same_stream(it) || (*it)->size < max_split || (*it)->is_split()) {
      return false;
    }
    Block* block = *it;
    ++it;
    released += block->size;
    release_segment(block);
  }
  return released >= size;
}

void DeviceCachingAllocator::release_blocks(BlockPool& pool) {
  // Blocks with pages leave parts of themselves in the pool, so the tree is not gone through while they are given back.
  std::vector<Block*> candidates;
  for (Block* block : pool.blocks) {
    if (!block->is_split() || block->expandable != nullptr) {
      candidates.push_back(block);
    }
  }
  for (Block* block : candidates) {
    release_segment(block);
  }
}

bool DeviceCachingAllocator::release_cached_blocks(MempoolId_t id) {
  ++stats_.num_sync_all_streams;
  process_events(/*wait=*/true);
  synchronize();
  settle();
  if (id == kPublicPool) {
    release_blocks(large_);
    release_blocks(small_);
  }
  for (const auto& [own_id, pool] : private_pools_) {
    if (own_id == id || (id == kPublicPool && pool->users == 0)) {
      release_blocks(pool->large);
      release_blocks(pool->small);
    }
  }
  drop_empty_pools();
  return true;
}

void DeviceCachingAllocator::empty_cache(MempoolId_t pool) {
  const std::lock_guard lock(mutex_);
  if (segments_.empty() && waiting_.empty() && postponed_.empty()) {
    return;
  }
  const NPUGuard guard(device_);
  activate_device();
  release_cached_blocks(pool);
}

// Gives back whole free segments of the large pool, oldest first, once more than the threshold's share is in use.
void DeviceCachingAllocator::collect_garbage() {
  if (device_total_ == 0) {
    size_t free = 0;
    NPU_CHECK(acl::aclrtGetMemInfo(ACL_HBM_MEM, &free, &device_total_));
  }
  const size_t allowed = fraction_.has_value() ? allowed_ : device_total_;
  const auto threshold = static_cast<size_t>(Config::garbage_collection_threshold() * static_cast<double>(allowed));
  if (reserved_ <= threshold) {
    return;
  }
  synchronize();  // first, since it may drop tensors and so change the pool
  size_t excess = reserved_ - threshold;
  std::vector<Block*> candidates;
  for (Block* block : large_.blocks) {
    if (!block->is_split()) {
      candidates.push_back(block);
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Block* a, const Block* b) { return a->birth < b->birth; });
  for (Block* block : candidates) {
    if (excess == 0) {
      break;
    }
    excess -= std::min(excess, block->size);
    release_segment(block);
  }
}

}  // namespace c10::npu::NPUCachingAllocator
