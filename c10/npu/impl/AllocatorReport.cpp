// What the allocator of one device tells about itself: statistics, snapshots, history.

#include <acl_loader.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/impl/DeviceCachingAllocator.h>

#include <algorithm>
#include <chrono>

namespace c10::npu::NPUCachingAllocator {

namespace {

template <class F>
void for_each_stat_array(DeviceStats& stats, F f) {
  for (StatArray* array :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (Stat& stat : *array) {
      f(stat);
    }
  }
  for (auto& [id, array] : stats.reserved_bytes_by_private_pools) {
    for (Stat& stat : array) {
      f(stat);
    }
  }
  f(stats.oversize_allocations);
  f(stats.oversize_segments);
}

}  // namespace

double DeviceCachingAllocator::memory_fraction() {
  const std::lock_guard lock(mutex_);
  return fraction_.value_or(1.0);
}

void DeviceCachingAllocator::set_memory_fraction(double fraction) {
  const NPUGuard guard(device_);
  activate_device();
  size_t free = 0, total = 0;
  NPU_CHECK(acl::aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
  const std::lock_guard lock(mutex_);
  fraction_ = fraction;
  allowed_ = static_cast<size_t>(fraction * static_cast<double>(total));
}

size_t DeviceCachingAllocator::largest_free_block() {
  const std::lock_guard lock(mutex_);
  settle();
  size_t largest = 0;
  for (const BlockPool* pool : {&small_, &large_}) {
    for (const Block* block : pool->blocks) {
      largest = std::max(largest, block->size);
    }
  }
  return largest;
}

bool DeviceCachingAllocator::is_known_free(const void* ptr) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return false;
  }
  const Block* block = addresses_.find_any(ptr);
  if (block == nullptr) {
    const auto after = segments_.upper_bound(ptr);
    block = after == segments_.begin() ? nullptr : std::prev(after)->second;
    const auto* const address = static_cast<const char*>(ptr);
    while (block != nullptr && address >= static_cast<const char*>(block->ptr) + block->size) {
      block = block->next;
    }
  }
  if (block == nullptr) {
    return false;
  }
  if (block->allocated) {  // behind what was asked for lies nothing of anybody's
    return static_cast<const char*>(ptr) >= static_cast<const char*>(block->ptr) + block->requested_size;
  }
  return block->event_count == 0 && block->stream_uses.empty();
}

std::optional<std::pair<void*, size_t>> DeviceCachingAllocator::segment_of(const void* ptr) {
  const std::lock_guard lock(mutex_);
  auto it = segments_.upper_bound(ptr);
  if (it == segments_.begin()) {
    return std::nullopt;
  }
  Block* first = std::prev(it)->second;
  size_t size = 0;
  for (const Block* block = first; block != nullptr; block = block->next) {
    size += block->size;
  }
  if (static_cast<const char*>(ptr) >= static_cast<const char*>(first->ptr) + size) {
    return std::nullopt;
  }
  return std::make_pair(first->ptr, size);
}

std::pair<size_t, size_t> DeviceCachingAllocator::totals() {
  const std::lock_guard lock(mutex_);
  constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
  return {static_cast<size_t>(stats_.allocated_bytes[kAll].current), reserved_};
}

DeviceStats DeviceCachingAllocator::stats() {
  const std::lock_guard lock(mutex_);
  settle();
  stats_.max_split_size =
      static_cast<int64_t>(std::min<size_t>(limits.max_split_size.load(), std::numeric_limits<int64_t>::max()));
  return stats_;
}

void DeviceCachingAllocator::reset_accumulated_stats() {
  const std::lock_guard lock(mutex_);
  settle();
  for_each_stat_array(stats_, [](Stat& stat) { stat.reset_accumulated(); });
  stats_.num_alloc_retries = 0;
  stats_.num_ooms = 0;
  stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = 0;
  stats_.num_device_free = 0;
}

void DeviceCachingAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  settle();
  for_each_stat_array(stats_, [](Stat& stat) { stat.reset_peak(); });
}

std::vector<SegmentInfo> DeviceCachingAllocator::snapshot(MempoolId_t pool) {
  const std::lock_guard lock(mutex_);
  settle();
  std::vector<SegmentInfo> result;
  result.reserve(segments_.size());
  for (const auto& [address, first] : segments_) {
    if (pool != kPublicPool && id_of(*first->pool) != pool) {
      continue;
    }
    SegmentInfo& segment = result.emplace_back();
    segment.owner_private_pool_id = id_of(*first->pool);
    segment.is_expandable = first->expandable != nullptr;
    segment.device = device_;
    segment.address = reinterpret_cast<size_t>(address);
    segment.stream = first->stream.stream();
    segment.is_large = !first->pool->is_small;
    segment.context_when_allocated = first->segment_context;
    for (const Block* block = first; block != nullptr; block = block->next) {
      BlockInfo& info = segment.blocks.emplace_back();
      info.size = block->size;
      info.requested_size = block->requested_size;
      info.allocated = block->allocated;
      info.active = block->allocated || block->event_count > 0 || !block->stream_uses.empty();
      info.context_when_allocated = block->context;
      segment.total_size += block->size;
      if (info.allocated) {
        segment.allocated_size += block->size;
      }
      if (info.active) {
        segment.active_size += block->size;
        segment.requested_size += block->requested_size;
      }
    }
  }
  return result;
}

// ---- history

std::vector<TraceEntry> DeviceCachingAllocator::trace() {
  const std::lock_guard lock(mutex_);
  return {history_.begin(), history_.end()};
}

bool DeviceCachingAllocator::is_history_enabled() {
  const std::lock_guard lock(mutex_);
  return history_enabled_;
}

void DeviceCachingAllocator::record_history(bool enabled, CreateContextFn recorder, size_t max_entries,
                                            RecordContext when, bool clear) {
  TORCH_CHECK(when == RecordContext::NEVER || recorder != nullptr, "Contexts cannot be recorded without a recorder");
  const std::lock_guard lock(mutex_);
  history_enabled_ = enabled;
  history_recorder_ = recorder;
  history_max_ = std::max<size_t>(max_entries, 1);
  history_when_ = enabled ? when : RecordContext::NEVER;
  if (!enabled || clear) {
    history_.clear();
  }
}

void DeviceCachingAllocator::attach_oom_observer(const OutOfMemoryObserver& observer) {
  const std::lock_guard lock(mutex_);
  oom_observers_.push_back(observer);
}

std::shared_ptr<GatheredContext> DeviceCachingAllocator::gather_context(RecordContext level) {
  if (C10_LIKELY(history_when_ < level)) {
    return nullptr;
  }
  return history_recorder_();
}

void DeviceCachingAllocator::trace_event(TraceEntry::Action action, const void* address, size_t size,
                                         const NPUStream& stream, MempoolId_t pool,
                                         std::shared_ptr<GatheredContext> context) {
  if (history_.size() >= history_max_) {
    history_.pop_front();
  }
  history_.emplace_back(action, device_, reinterpret_cast<size_t>(address), size, stream.stream(), pool,
                        /*time=*/0, history_when_ >= RecordContext::ALLOC ? std::move(context) : nullptr);
  using std::chrono::microseconds;
  history_.back().time_.t_ =
      std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace c10::npu::NPUCachingAllocator
