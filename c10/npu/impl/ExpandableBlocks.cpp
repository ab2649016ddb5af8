// How the blocks of the allocator follow when pages are mapped and unmapped. Note [Expandable segments] in
// ExpandableSegment.h explains them.

#include <c10/npu/impl/DeviceCachingAllocator.h>
#include <c10/npu/impl/StatCounts.h>

#include <acl_loader.h>
#include <c10/core/AllocatorConfig.h>

#include <algorithm>

namespace c10::npu::NPUCachingAllocator {

namespace {

constexpr size_t kGranule = size_t{2} << 20;  // of ACL's physical memory

bool is_free(const Block* block) {
  return block != nullptr && !block->allocated && !block->hot && block->event_count == 0 && block->stream_uses.empty();
}

size_t pages_for(size_t bytes, size_t page) { return (bytes + page - 1) / page; }

}  // namespace

bool DeviceCachingAllocator::is_expandable(const BlockPool& pool) const {
  return limits.expandable_segments.load(std::memory_order_relaxed) &&
         (pool.owner == nullptr || (pool.owner->source == nullptr && !pool.owner->no_split));
}

// A free block of at least `size` bytes that is in no pool. Null without an error where there are no addresses for it.
Block* DeviceCachingAllocator::grow(BlockPool& pool, size_t size, const NPUStream& stream, aclError* error) {
  *error = ACL_SUCCESS;
  auto& segments = expandable_[&pool];
  for (const auto& segment : segments) {
    if (segment->stream() == stream) {
      Block* block = grow_segment(*segment, pool, size, error);
      if (block != nullptr || *error != ACL_SUCCESS) {
        return block;
      }
    }
  }
  if (device_total_ == 0) {
    size_t free = 0;
    NPU_CHECK(acl::aclrtGetMemInfo(ACL_HBM_MEM, &free, &device_total_));
  }
  const size_t large = CachingAllocator::AcceleratorAllocatorConfig::large_segment_size();
  const size_t page = pool.is_small ? kGranule : pages_for(large, kGranule) * kGranule;
  const size_t wanted = std::max(pool.is_small ? device_total_ / 8 : device_total_, size);
  auto segment = ExpandableSegment::make(stream, pages_for(wanted, page) * page, page);
  if (segment == nullptr) {
    return nullptr;
  }
  Block* block = grow_segment(*segment, pool, size, error);
  if (block != nullptr) {
    segments.push_back(std::move(segment));
  }
  return block;
}

// In the first gap between mapped pages that is large enough together with the free blocks at its ends.
Block* DeviceCachingAllocator::grow_segment(ExpandableSegment& segment, BlockPool& pool, size_t size, aclError* error) {
  const size_t page = segment.page();
  size_t end = 0;
  for (size_t at = 0; at < segment.pages(); at = end + 1) {
    for (end = at; end < segment.pages() && !segment.is_mapped(end);) {
      ++end;
    }
    if (end == at) {
      continue;
    }
    const Block* left = at > 0 ? block_before(segment.address(at)) : nullptr;
    const Block* right = end < segment.pages() ? segments_.at(segment.address(end)) : nullptr;
    const size_t before = is_free(left) ? left->size : 0;
    const size_t after = is_free(right) ? right->size : 0;
    if (before + (end - at) * page + after < size) {
      continue;
    }
    const size_t missing = size > before ? size - before : 0;
    const size_t count = std::clamp(pages_for(missing, page), size_t{1}, end - at);
    if (fraction_.has_value() && reserved_ + count * page > allowed_) {
      *error = ACL_ERROR_STORAGE_OVER_LIMIT;
      return nullptr;
    }
    *error = segment.map(at, at + count);
    return *error == ACL_SUCCESS ? enter_pages(segment, pool, at, at + count) : nullptr;
  }
  return nullptr;
}

// Makes pages that have just been mapped one free block with its free neighbours, which is in no pool.
Block* DeviceCachingAllocator::enter_pages(ExpandableSegment& segment, BlockPool& pool, size_t first, size_t last) {
  char* const address = segment.address(first);
  Block* block = make_block(segment.stream(), (last - first) * segment.page(), &pool, address);
  block->expandable = &segment;
  Block* left = first > 0 && segment.is_mapped(first - 1) ? block_before(address) : nullptr;
  Block* right = last < segment.pages() && segment.is_mapped(last) ? segments_.at(segment.address(last)) : nullptr;
  count_reserved(pool, block->size);
  if (history_enabled_) {
    trace_event(TraceEntry::SEGMENT_MAP, address, block->size, block->stream, id_of(pool),
                gather_context(RecordContext::STATE));
  }
  // Two runs become one, or a run grows, or a new one begins.
  if (left == nullptr) {
    segments_.emplace(address, block);
    increase(stats_.segment, pool, 1);
  }
  if (right != nullptr) {
    segments_.erase(right->ptr);
    decrease(stats_.segment, pool, 1);
  }
  for (Block* neighbour : {left, right}) {
    if (is_free(neighbour) && !neighbour->is_split()) {
      increase(stats_.inactive_split, pool, 1);
      increase(stats_.inactive_split_bytes, pool, neighbour->size);
    }
  }
  block->prev = left;
  block->next = right;
  if (left != nullptr) {
    left->next = block;
  }
  if (right != nullptr) {
    right->prev = block;
  }
  Block* joined = is_free(left) ? left : block;
  join_and_insert(block);
  pool.erase(joined);
  if (joined->is_split()) {
    decrease(stats_.inactive_split, pool, 1);
    decrease(stats_.inactive_split_bytes, pool, joined->size);
  }
  return joined;
}

// The block that ends at the address, where a run ends.
Block* DeviceCachingAllocator::block_before(const void* address) {
  Block* block = std::prev(segments_.lower_bound(address))->second;
  while (block->next != nullptr) {
    block = block->next;
  }
  return block;
}

// Unmaps the whole pages of a free block; what it has of others stays in the pool.
void DeviceCachingAllocator::release_pages(Block* block) {
  ExpandableSegment& segment = *block->expandable;
  BlockPool& pool = *block->pool;
  char* const begin = static_cast<char*>(block->ptr);
  char* const end = begin + block->size;
  const size_t first = segment.page_of(begin + segment.page() - 1), last = segment.page_of(end);
  if (first >= last) {
    return;
  }
  char* const low = segment.address(first);
  char* const high = segment.address(last);
  segment.unmap(first, last);
  count_given_back(pool, static_cast<size_t>(high - low));
  if (history_enabled_) {
    trace_event(TraceEntry::SEGMENT_UNMAP, low, static_cast<size_t>(high - low), block->stream, id_of(pool),
                gather_context(RecordContext::STATE));
  }
  pool.erase(block);
  if (block->is_split()) {
    decrease(stats_.inactive_split, pool, 1);
    decrease(stats_.inactive_split_bytes, pool, block->size);
  }
  const auto put_back = [&](Block* rest) {
    rest->birth = pool.requests;
    pool.insert(rest);
    if (rest->is_split()) {
      increase(stats_.inactive_split, pool, 1);
      increase(stats_.inactive_split_bytes, pool, rest->size);
    }
  };
  // The run ends where the pages end, and what is behind them is a run of its own.
  decrease(stats_.segment, pool, 1);
  Block* right = block->next;
  if (high < end) {
    Block* rest = make_block(block->stream, static_cast<size_t>(end - high), &pool, high);
    rest->expandable = &segment;
    rest->next = right;
    if (right != nullptr) {
      right->prev = rest;
    }
    right = rest;
    put_back(rest);
  } else if (right != nullptr) {
    right->prev = nullptr;
  }
  if (right != nullptr) {
    segments_.emplace(right->ptr, right);
    increase(stats_.segment, pool, 1);
  }
  if (low > begin) {
    block->size = static_cast<size_t>(low - begin);
    block->next = nullptr;
    put_back(block);
    increase(stats_.segment, pool, 1);
  } else {
    if (block->prev != nullptr) {
      block->prev->next = nullptr;
      increase(stats_.segment, pool, 1);
    } else {
      segments_.erase(begin);
    }
    addresses_.forget(block);
    destroy_block(block);
  }
  if (segment.is_empty()) {
    std::erase_if(expandable_[&pool], [&](const auto& made) { return made.get() == &segment; });
  }
}

}  // namespace c10::npu::NPUCachingAllocator
