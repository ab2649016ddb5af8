// Requests and frees. Note [Blocks and segments] in the header explains the parts.

#include <c10/npu/impl/DeviceCachingAllocator.h>

#include <acl_loader.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/npu/NPUGraphsC10Utils.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUTaskQueue.h>
#include <c10/npu/impl/StatCounts.h>
#include <c10/npu/impl/Trace.h>

#include <algorithm>
#include <utility>

namespace c10::npu::NPUCachingAllocator {

using Config = CachingAllocator::AcceleratorAllocatorConfig;
using CachingAllocator::kMinBlockSize;
using CachingAllocator::kMinLargeAlloc;
using CachingAllocator::kRoundLarge;
using CachingAllocator::kSmallBuffer;
using CachingAllocator::kSmallSize;

namespace {

size_t round_up(size_t size, size_t multiple) { return (size + multiple - 1) / multiple * multiple; }

// CANN's kernels may read up to 32 bytes past an operand.
size_t padding() {
  static const size_t bytes = is_simulator() ? 0 : 32;
  return bytes;
}

size_t round_size(size_t size) {
  size += padding();
  if (size < kMinBlockSize) {
    return kMinBlockSize;
  }
  if (C10_UNLIKELY(limits.round_to_power_of_two.load(std::memory_order_relaxed))) {
    const size_t divisions = Config::roundup_power2_divisions(size);
    if (divisions > 1 && size > kMinBlockSize * divisions) {
      const size_t floor = size_t{1} << llvm::Log2_64(size);
      return floor == size ? size : floor + round_up(size - floor, floor / divisions);
    }
  }
  return round_up(size, kMinBlockSize);
}

size_t segment_size(size_t size) {
  if (size <= kSmallSize) {
    return kSmallBuffer;
  }
  return size < kMinLargeAlloc ? std::max(Config::large_segment_size(), round_up(size, kRoundLarge))
                               : round_up(size, kRoundLarge);
}

bool is_out_of_memory(aclError code) {
  return code == ACL_ERROR_RT_MEMORY_ALLOCATION || code == ACL_ERROR_BAD_ALLOC ||
         code == ACL_ERROR_STORAGE_OVER_LIMIT || code == ACL_ERROR_RT_DEVICE_OOM;
}

}  // namespace

Limits limits;

void apply_settings() {
  limits.max_split_size.store(Config::max_split_size());
  const auto& divisions = Config::roundup_power2_divisions();
  limits.round_to_power_of_two.store(std::any_of(divisions.begin(), divisions.end(), [](size_t n) { return n > 1; }));
  limits.collect_garbage.store(Config::garbage_collection_threshold() > 0);
  limits.expandable_segments.store(Config::use_expandable_segments());
}

// ---- blocks

Block* DeviceCachingAllocator::make_block(const NPUStream& stream, size_t size, BlockPool* pool, void* ptr) {
  if (spare_blocks_.empty()) {
    return new Block(stream, size, pool, ptr);
  }
  Block* block = spare_blocks_.back();
  spare_blocks_.pop_back();
  *block = Block(stream, size, pool, ptr);
  return block;
}

void DeviceCachingAllocator::destroy_block(Block* block) {
  if (spare_blocks_.size() < BlockPool::kSpareNodes) {
    spare_blocks_.push_back(block);
  } else {
    delete block;
  }
}

// ---- requests

DeviceCachingAllocator::Allocation DeviceCachingAllocator::malloc(size_t requested_size, const NPUStream& stream) {
  std::unique_lock lock(mutex_);
  auto context = C10_UNLIKELY(history_enabled_) ? gather_context(RecordContext::STATE) : nullptr;
  if (C10_UNLIKELY(!waiting_.empty() || !postponed_.empty())) {
    process_events(/*wait=*/false);
  }
  const size_t size = round_size(requested_size);
  BlockPool& pool = pool_of(size, stream);
  if (Block* hot = C10_LIKELY(pool.owner == nullptr) ? hot_.take(size, stream) : nullptr) {
    hot->allocated = true;
    hot->requested_size = requested_size;
    count_allocation(*hot);
    if (C10_UNLIKELY(history_enabled_)) {
      trace_allocation(hot, std::move(context));
    }
    return {hot->ptr, size, false};
  }
  if (pool.is_small) {
    settle();
  }
  const int64_t waits = stats_.num_sync_all_streams;
  Block* block = take_free_block(pool, size, stream);
  if (C10_UNLIKELY(block == nullptr)) {
    aclError error = ACL_SUCCESS;
    const size_t wanted = segment_size(size);
    const bool may_wait = !is_any_capture_under_way();
    if (may_wait && limits.collect_garbage.load(std::memory_order_relaxed)) {
      collect_garbage();
    }
    block = get_memory(pool, size, stream, &error);
    if (block == nullptr && is_out_of_memory(error)) {
      ++stats_.num_alloc_retries;
      if (may_wait && release_for(pool, size, stream)) {
        block = get_memory(pool, size, stream, &error);
      }
      if (block == nullptr && may_wait && release_cached_blocks(kPublicPool)) {
        block = get_memory(pool, size, stream, &error);
      }
      if (block == nullptr && round_up(size, kRoundLarge) < wanted) {
        // No room for a segment that others share: one that serves this request alone.
        block = make_segment(pool, round_up(size, kRoundLarge), stream, &error);
      }
      if (block == nullptr && pool.owner == nullptr) {
        block = take_from_spare_pools(size, stream);
      }
    }
    if (block == nullptr) {
      if (is_out_of_memory(error)) {
        throw_out_of_memory(lock, wanted, requested_size, error, stream);
      }
      NPU_CHECK(error, "allocating ", format_size(wanted));
    }
  }
  use_block(block, size, requested_size, std::move(context));
  return {block->ptr, block->size, stats_.num_sync_all_streams != waits};
}

Block* DeviceCachingAllocator::take_free_block(BlockPool& pool, size_t size, const NPUStream& stream) {
  ++pool.requests;
  Block key(stream, size, nullptr, nullptr);
  const auto found = pool.blocks.lower_bound(&key);
  if (found == pool.blocks.end() || (*found)->stream.id() != stream.id()) {
    return nullptr;
  }
  Block* block = *found;
  const size_t max_split = max_split_size();
  if (C10_UNLIKELY(block->size >= max_split)) {
    // An oversize block is kept for requests of about its size, since it may not be split.
    if (size < max_split || block->size >= size + Config::max_non_split_rounding_size()) {
      return nullptr;
    }
  }
  pool.erase(block);
  if (block->is_split()) {
    decrease(stats_.inactive_split, pool, 1);
    decrease(stats_.inactive_split_bytes, pool, block->size);
  }
  return block;
}

bool DeviceCachingAllocator::should_split(const Block* block, size_t size) const {
  const size_t remaining = block->size - size;
  if (C10_UNLIKELY(block->pool->owner != nullptr && block->pool->owner->no_split)) {
    return false;
  }
  // Pages are many times a small request, and given back as they become free.
  if (block->pool->is_small || block->expandable != nullptr) {
    return remaining >= kMinBlockSize;
  }
  return remaining > kSmallSize && size < max_split_size();
}

void DeviceCachingAllocator::use_block(Block* block, size_t size, size_t requested_size,
                                       std::shared_ptr<GatheredContext> context) {
  BlockPool& pool = *block->pool;
  if (should_split(block, size)) {
    Block* rest = make_block(block->stream, block->size - size, &pool, static_cast<char*>(block->ptr) + size);
    rest->prev = block;
    rest->next = block->next;
    if (rest->next != nullptr) {
      rest->next->prev = rest;
    }
    rest->birth = pool.requests;
    rest->expandable = block->expandable;
    block->next = rest;
    block->size = size;
    pool.insert(rest);
    increase(stats_.inactive_split, pool, 1);
    increase(stats_.inactive_split_bytes, pool, rest->size);
  }
  block->allocated = true;
  block->requested_size = requested_size;
  addresses_.remember(block);
  count_allocation(*block);
  if (C10_UNLIKELY(block->size >= max_split_size())) {
    stats_.oversize_allocations.increase(1);
  }
  if (C10_UNLIKELY(history_enabled_)) {
    trace_allocation(block, std::move(context));
  }
}

void DeviceCachingAllocator::trace_allocation(Block* block, std::shared_ptr<GatheredContext> context) {
  block->context = std::move(context);
  trace_event(TraceEntry::ALLOC, block->ptr, block->requested_size, block->stream, id_of(*block->pool), block->context);
}

inline void DeviceCachingAllocator::count_allocation(const Block& block) {
  const BlockPool& pool = *block.pool;
  increase(stats_.allocation, pool, 1);
  increase(stats_.allocated_bytes, pool, block.size);
  increase(stats_.active, pool, 1);
  increase(stats_.active_bytes, pool, block.size);
  increase(stats_.requested_bytes, pool, block.requested_size);
}

inline void DeviceCachingAllocator::count_free(const Block& block) {
  const BlockPool& pool = *block.pool;
  decrease(stats_.active, pool, 1);
  decrease(stats_.active_bytes, pool, block.size);
  decrease(stats_.requested_bytes, pool, block.requested_size);
}

void DeviceCachingAllocator::settle() {
  hot_.take_all([this](Block* block) { join_and_insert(block); });
}

Block* DeviceCachingAllocator::get_memory(BlockPool& pool, size_t size, const NPUStream& stream, aclError* error) {
  if (C10_UNLIKELY(is_expandable(pool))) {
    Block* block = grow(pool, size, stream, error);
    if (block != nullptr || *error != ACL_SUCCESS) {
      return block;
    }
  }
  return make_segment(pool, segment_size(size), stream, error);
}

void DeviceCachingAllocator::count_reserved(BlockPool& pool, size_t bytes) {
  reserved_ += bytes;
  ++stats_.num_device_alloc;
  increase(stats_.reserved_bytes, pool, bytes);
  if (pool.owner != nullptr) {
    pool.owner->reserved += bytes;
    increase(stats_.reserved_bytes_by_private_pools[pool.owner->id], pool, bytes);
  }
}

void DeviceCachingAllocator::count_given_back(BlockPool& pool, size_t bytes) {
  reserved_ -= bytes;
  ++stats_.num_device_free;
  decrease(stats_.reserved_bytes, pool, bytes);
  if (pool.owner != nullptr) {
    pool.owner->reserved -= bytes;
    decrease(stats_.reserved_bytes_by_private_pools[pool.owner->id], pool, bytes);
  }
}

Block* DeviceCachingAllocator::make_segment(BlockPool& pool, size_t size, const NPUStream& stream, aclError* error) {
  if (fraction_.has_value() && reserved_ + size > allowed_) {
    *error = ACL_ERROR_STORAGE_OVER_LIMIT;
    return nullptr;
  }
  void* ptr = nullptr;
  if (pool.owner != nullptr && pool.owner->source != nullptr) {
    ptr = pool.owner->source->raw_alloc_with_stream(size, stream);
    *error = ptr != nullptr ? ACL_SUCCESS : ACL_ERROR_RT_MEMORY_ALLOCATION;
  } else {
    *error = acl::aclrtMalloc(&ptr, size, ACL_MEM_MALLOC_HUGE_FIRST);
  }
  if (*error != ACL_SUCCESS) {
    return nullptr;
  }
  Block* block = make_block(stream, size, &pool, ptr);
  segments_.emplace(ptr, block);
  count_reserved(pool, size);
  increase(stats_.segment, pool, 1);
  if (size >= max_split_size()) {
    stats_.oversize_segments.increase(1);
  }
  if (history_enabled_) {
    block->segment_context = gather_context(RecordContext::STATE);
    trace_event(TraceEntry::SEGMENT_ALLOC, ptr, size, stream, id_of(pool), block->segment_context);
  }
  return block;
}

void DeviceCachingAllocator::throw_out_of_memory(std::unique_lock<AllocatorLock>& lock, size_t size,
                                                 size_t requested_size, aclError error, const NPUStream& stream) {
  const std::string reason = take_recent_error();
  size_t device_free = 0, device_total = 0;
  NPU_CHECK(acl::aclrtGetMemInfo(ACL_HBM_MEM, &device_free, &device_total));
  ++stats_.num_ooms;
  const auto current = [](const StatArray& stat) {
    return static_cast<uint64_t>(stat[static_cast<size_t>(StatType::AGGREGATE)].current);
  };
  const uint64_t allocated = current(stats_.allocated_bytes), reserved = current(stats_.reserved_bytes);
  if (history_enabled_) {
    trace_event(TraceEntry::OOM, reinterpret_cast<const void*>(device_free), size, stream, kPublicPool,
                gather_context(RecordContext::STATE));
  }
  const std::string allowed = fraction_.has_value() ? format_size(allowed_) + " allowed; " : "";
  const auto observers = oom_observers_;
  // The exception may run arbitrary code while it unwinds, and observers may ask for statistics.
  lock.unlock();

  const Device device(DeviceType::PrivateUse1, device_);
  reportOutOfMemoryToProfiler(static_cast<int64_t>(size), allocated, reserved, device);
  for (const auto& observer : observers) {
    observer(device_, size, device_total, device_free);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, "NPU out of memory. Tried to allocate ", format_size(requested_size),
                   " (NPU ", static_cast<int>(device_), "; ", format_size(device_total), " total capacity; ",
                   format_size(allocated), " already allocated; ", format_size(device_free), " free; ", allowed,
                   format_size(reserved),
                   " reserved in total by PyTorch). If reserved memory is much larger than allocated memory, set "
                   "max_split_size_mb in "
                   "PYTORCH_NPU_ALLOC_CONF to avoid fragmentation.\nmalloc:c10/npu/impl/DeviceCachingAllocator.cpp:",
                   __LINE__, " NPU error, error code is ", error, ". (", error_name(error), ")",
                   reason.empty() ? "" : " Reason: ", reason);
}

// ---- frees

size_t DeviceCachingAllocator::free(void* ptr) noexcept {
  const std::lock_guard lock(mutex_);
  Block* block = addresses_.find(ptr);
  if (C10_UNLIKELY(block == nullptr)) {
    return 0;
  }
  const size_t size = block->size;
  BlockPool& pool = *block->pool;
  block->allocated = false;
  decrease(stats_.allocation, pool, 1);
  decrease(stats_.allocated_bytes, pool, block->size);
  if (C10_UNLIKELY(block->size >= max_split_size())) {
    stats_.oversize_allocations.decrease(1);
  }
  if (C10_UNLIKELY(history_enabled_)) {
    trace_event(TraceEntry::FREE_REQUESTED, block->ptr, block->requested_size, block->stream, id_of(pool),
                gather_context(RecordContext::ALL));
  }
  if (C10_LIKELY(block->stream_uses.empty())) {
    free_block(block);
  } else if (C10_UNLIKELY(is_any_capture_under_way())) {
    postponed_.push_back(block);
  } else {
    defer_free(block);
  }
  return size;
}

void DeviceCachingAllocator::free_block(Block* block) {
  count_free(*block);
  if (C10_UNLIKELY(history_enabled_)) {
    trace_event(TraceEntry::FREE_COMPLETED, block->ptr, block->requested_size, block->stream, id_of(*block->pool),
                std::move(block->context));
  }
  block->context.reset();
  block->requested_size = 0;
  if (!hot_.keep(block)) {
    join_and_insert(block);
  }
}

void DeviceCachingAllocator::join_and_insert(Block* block) {
  BlockPool& pool = *block->pool;
  // The left one of two joined blocks lives on, so that segments_ stays right.
  const auto is_free = [](const Block* b) {
    return b != nullptr && !b->allocated && !b->hot && b->event_count == 0 && b->stream_uses.empty();
  };
  const auto absorb_next = [this](Block* left) {
    Block* right = left->next;
    left->size += right->size;
    left->next = right->next;
    if (left->next != nullptr) {
      left->next->prev = left;
    }
    addresses_.forget(right);
    destroy_block(right);
  };
  const auto forget = [&](Block* neighbour) {
    pool.erase(neighbour);
    decrease(stats_.inactive_split, pool, 1);
    decrease(stats_.inactive_split_bytes, pool, neighbour->size);
  };
  if (is_free(block->next)) {
    forget(block->next);
    absorb_next(block);
  }
  if (is_free(block->prev)) {
    block = block->prev;
    forget(block);
    absorb_next(block);
  }
  block->birth = pool.requests;
  pool.insert(block);
  if (block->is_split()) {
    increase(stats_.inactive_split, pool, 1);
    increase(stats_.inactive_split_bytes, pool, block->size);
  }
}

bool DeviceCachingAllocator::record_stream(void* ptr, const NPUStream& stream) {
  const std::lock_guard lock(mutex_);
  Block* block = addresses_.find(ptr);
  if (block == nullptr) {
    return false;
  }
  auto& uses = block->stream_uses;
  if (stream != block->stream && std::find(uses.begin(), uses.end(), stream) == uses.end()) {
    uses.push_back(stream);
  }
  return true;
}

bool DeviceCachingAllocator::erase_stream(void* ptr, const NPUStream& stream) {
  const std::lock_guard lock(mutex_);
  Block* block = addresses_.find(ptr);
  if (block == nullptr) {
    return false;
  }
  std::erase(block->stream_uses, stream);
  return true;
}

void DeviceCachingAllocator::defer_free(Block* block) {
  const std::vector<NPUStream> uses = std::move(block->stream_uses);
  block->stream_uses.clear();
  if (is_shut_down() || is_in_bad_fork()) {
    free_block(block);
    return;
  }
  for (const NPUStream& stream : uses) {
    try {
      NPUEvent event = NPUEvent::untraced();
      if (!spare_events_.empty()) {
        event = std::move(spare_events_.back());
        spare_events_.pop_back();
      }
      event.record(stream, /*raise_deferred=*/false);
      waiting_[stream].emplace_back(std::move(event), block);
      ++block->event_count;
    } catch (const std::exception& error) {
      // Frees come from destructors. A stream that takes no event runs nothing that could use the block either.
      TORCH_WARN("A block used by another npu stream is freed without waiting: ", error.what());
    }
  }
  if (block->event_count == 0) {
    free_block(block);
  }
}

void DeviceCachingAllocator::free_postponed() {
  for (Block* block : std::exchange(postponed_, {})) {
    defer_free(block);
  }
}

void DeviceCachingAllocator::process_events(bool wait) {
  if (C10_UNLIKELY(is_any_capture_under_way())) {
    return;
  }
  free_postponed();
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    auto& events = it->second;
    while (!events.empty()) {
      auto& [event, block] = events.front();
      if (wait) {
        event.synchronize();
      } else if (!event.query()) {
        break;
      }
      spare_events_.push_back(std::move(event));
      if (--block->event_count == 0) {
        free_block(block);
      }
      events.pop_front();
    }
    it = events.empty() ? waiting_.erase(it) : std::next(it);
  }
}

}  // namespace c10::npu::NPUCachingAllocator
