#pragma once
// The caching allocator of one device: blocks, pools, statistics. NPUCachingAllocator.cpp puts one per device
// behind c10's allocator interface; the blocks themselves are in Blocks.h.

#include <c10/core/AllocatorConfig.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUEvent.h>
#include <c10/npu/impl/AllocatorLock.h>
#include <c10/npu/impl/Blocks.h>
#include <c10/npu/impl/ExpandableSegment.h>

#include <atomic>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace c10::npu::NPUCachingAllocator {

// The settings that every request looks at, kept apart from c10's because reading those costs a call each.
// apply_settings copies them; c10 calls it after each change through the hook that NPUCachingAllocator.cpp registers.
struct Limits {
  std::atomic<size_t> max_split_size{std::numeric_limits<size_t>::max()};
  std::atomic<bool> round_to_power_of_two{false};
  std::atomic<bool> collect_garbage{false};
  std::atomic<bool> expandable_segments{false};
};
extern Limits limits;
void apply_settings();
// From this size on a block is oversize: it is not split, and serves requests of about its own size only.
inline size_t max_split_size() { return limits.max_split_size.load(std::memory_order_relaxed); }

class DeviceCachingAllocator {
 public:
  explicit DeviceCachingAllocator(DeviceIndex device) : device_(device) {}

  struct Allocation {
    void* ptr;
    size_t size;  // bytes, rounded
    bool waited;  // for all streams of the device, since memory was given back
  };
  // The device must be active. Throws c10::OutOfMemoryError.
  Allocation malloc(size_t requested_size, const NPUStream& stream);
  // The bytes freed; 0 if the address is not that of an allocated block.
  size_t free(void* ptr) noexcept;
  // Bytes of allocated blocks and of segments.
  std::pair<size_t, size_t> totals();
  // False if the address is not that of an allocated block.
  bool record_stream(void* ptr, const NPUStream& stream);
  // Takes that back; false likewise.
  bool erase_stream(void* ptr, const NPUStream& stream);
  // What is cached in one pool; of kPublicPool, also in those that nobody uses any more.
  void empty_cache(MempoolId_t pool);

  // Note [Private pools]
  void use_pool(MempoolId_t id, std::shared_ptr<NPUAllocator> source);
  void begin_allocate_to_pool(MempoolId_t id, StreamFilter filter);
  void end_allocate_to_pool(MempoolId_t id);
  void release_pool(MempoolId_t id);
  int pool_users(MempoolId_t id);
  void set_use_on_oom(MempoolId_t id, bool use);
  void set_no_split(MempoolId_t id);

  double memory_fraction();
  void set_memory_fraction(double fraction);
  size_t largest_free_block();
  // The segment that holds ptr: first address and bytes; nullopt when none of this device does.
  std::optional<std::pair<void*, size_t>> segment_of(const void* ptr);
  // NPUAllocator::isFree.
  bool is_known_free(const void* ptr) noexcept;

  DeviceStats stats();
  void reset_accumulated_stats();
  void reset_peak_stats();

  std::vector<SegmentInfo> snapshot(MempoolId_t pool);
  std::vector<TraceEntry> trace();
  bool is_history_enabled();
  void record_history(bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear);
  void attach_oom_observer(const OutOfMemoryObserver& observer);

 private:
  BlockPool& pool_of(size_t size, const NPUStream& stream) {
    if (C10_UNLIKELY(!routes_.empty())) {
      if (PrivatePool* pool = routed_pool(stream)) {
        return size <= CachingAllocator::kSmallSize ? pool->small : pool->large;
      }
    }
    return size <= CachingAllocator::kSmallSize ? small_ : large_;
  }
  // The pool that this thread's requests for the stream go to; null for the public one.
  PrivatePool* routed_pool(const NPUStream& stream);
  PrivatePool& private_pool(MempoolId_t id);
  Block* take_from_spare_pools(size_t size, const NPUStream& stream);
  void drop_empty_pools();

  Block* make_block(const NPUStream& stream, size_t size, BlockPool* pool, void* ptr);
  void destroy_block(Block* block);
  Block* take_free_block(BlockPool& pool, size_t size, const NPUStream& stream);
  Block* make_segment(BlockPool& pool, size_t size, const NPUStream& stream, aclError* error);
  Block* get_memory(BlockPool& pool, size_t size, const NPUStream& stream, aclError* error);
  void use_block(Block* block, size_t size, size_t requested_size, std::shared_ptr<GatheredContext> context);
  bool should_split(const Block* block, size_t size) const;

  void free_block(Block* block);
  void join_and_insert(Block* block);
  void defer_free(Block* block);
  void free_postponed();
  void process_events(bool wait);

  bool release_for(BlockPool& pool, size_t size, const NPUStream& stream);
  bool release_cached_blocks(MempoolId_t id);
  void release_blocks(BlockPool& pool);
  void collect_garbage();
  void release_segment(Block* block);
  void synchronize();

  // Note [Expandable segments]
  bool is_expandable(const BlockPool& pool) const;
  Block* grow(BlockPool& pool, size_t size, const NPUStream& stream, aclError* error);
  Block* grow_segment(ExpandableSegment& segment, BlockPool& pool, size_t size, aclError* error);
  Block* enter_pages(ExpandableSegment& segment, BlockPool& pool, size_t first, size_t last);
  Block* block_before(const void* address);
  void release_pages(Block* block);
  void count_reserved(BlockPool& pool, size_t bytes);
  void count_given_back(BlockPool& pool, size_t bytes);

  // Makes hot blocks free ones like all others.
  void settle();

  void count_allocation(const Block& block);
  void count_free(const Block& block);

  [[noreturn]] void throw_out_of_memory(std::unique_lock<AllocatorLock>& lock, size_t size, size_t requested_size,
                                        aclError error, const NPUStream& stream);

  std::shared_ptr<GatheredContext> gather_context(RecordContext level);
  void trace_allocation(Block* block, std::shared_ptr<GatheredContext> context);
  void trace_event(TraceEntry::Action action, const void* address, size_t size, const NPUStream& stream,
                   MempoolId_t pool, std::shared_ptr<GatheredContext> context);

  const DeviceIndex device_;
  AllocatorLock mutex_;
  BlockPool small_{/*is_small=*/true};
  BlockPool large_{/*is_small=*/false};
  HotBlocks hot_;
  BlockAddresses addresses_;
  std::map<const void*, Block*> segments_;  // first block of each, by address
  std::unordered_map<NPUStream, std::deque<std::pair<NPUEvent, Block*>>> waiting_;
  std::vector<Block*> postponed_;  // freed, with stream_uses, see Note [Captures under way]
  std::vector<NPUEvent> spare_events_;
  std::vector<Block*> spare_blocks_;
  DeviceStats stats_;
  size_t reserved_ = 0;  // bytes of all segments
  std::map<MempoolId_t, std::unique_ptr<PrivatePool>> private_pools_;
  std::vector<std::pair<PrivatePool*, StreamFilter>> routes_;  // the one that began last comes last
  std::map<const BlockPool*, std::vector<std::unique_ptr<ExpandableSegment>>> expandable_;
  std::optional<double> fraction_;
  size_t allowed_ = 0;  // bytes that the fraction allows
  size_t device_total_ = 0;

  std::vector<OutOfMemoryObserver> oom_observers_;
  bool history_enabled_ = false;
  RecordContext history_when_ = RecordContext::NEVER;
  CreateContextFn history_recorder_ = nullptr;
  size_t history_max_ = 1;
  std::deque<TraceEntry> history_;
};

}  // namespace c10::npu::NPUCachingAllocator
