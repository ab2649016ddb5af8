#pragma once
// The caching allocator of one device: blocks, pools, statistics. NPUCachingAllocator.cpp puts one per device
// behind c10's allocator interface.

#include <c10/core/AllocatorConfig.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUEvent.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

namespace c10::npu::NPUCachingAllocator {

struct Block;
struct BlockPool;

struct ByStreamAndSize {
  bool operator()(const Block* a, const Block* b) const;
};
using BlockTree = std::set<Block*, ByStreamAndSize>;

// Note [Blocks and segments]
// A segment is what aclrtMalloc gave; it is a list of blocks, linked by address. A block is allocated (a caller has
// it), waiting (freed, but work of other streams still uses it: event_count > 0), or free (in its pool). A request
// takes the smallest free block of its stream that is large enough and splits off what is left when that is worth
// keeping; freeing joins free neighbours again. Requests up to 1 MiB come from the small pool, whose segments have
// 2 MiB; larger ones from the large pool. A block belongs to the stream that its segment was made for: work
// queued earlier on that stream is done before later work, so a block may be handed out again at once, without any
// event. For the same reason a segment may go back to the device only after the device has been waited for.
struct Block {
  Block(NPUStream stream, size_t size, BlockPool* pool, void* ptr) : stream(stream), size(size), ptr(ptr), pool(pool) {}

  bool is_split() const { return prev != nullptr || next != nullptr; }

  NPUStream stream;
  size_t size;  // bytes, rounded
  void* ptr;
  BlockPool* pool;
  size_t requested_size = 0;  // bytes that the caller asked for
  Block* prev = nullptr;      // neighbours in the segment
  Block* next = nullptr;
  bool allocated = false;
  int event_count = 0;
  BlockTree::iterator where;           // in the pool's tree while the block is free
  int64_t birth = 0;                   // the pool's request count when the block became free
  std::vector<NPUStream> stream_uses;  // other streams that record_stream named
  std::shared_ptr<GatheredContext> context;
  std::shared_ptr<GatheredContext> segment_context;  // on the first block of a segment
};

inline bool ByStreamAndSize::operator()(const Block* a, const Block* b) const {
  if (a->stream.id() != b->stream.id()) {
    return a->stream.id() < b->stream.id();
  }
  if (a->size != b->size) {
    return a->size < b->size;
  }
  return a->ptr < b->ptr;
}

// Free blocks of one kind, smallest first for each stream. Nodes of the tree are used again: they are half the cost
// of an allocation otherwise.
struct BlockPool {
  explicit BlockPool(bool is_small) : is_small(is_small) {}

  void insert(Block* block) {
    if (spare.empty()) {
      block->where = blocks.insert(block).first;
    } else {
      spare.back().value() = block;
      block->where = blocks.insert(std::move(spare.back())).position;
      spare.pop_back();
    }
  }
  void erase(Block* block) {
    auto node = blocks.extract(block->where);
    if (spare.size() < kSpareNodes) {
      spare.push_back(std::move(node));
    }
  }

  static constexpr size_t kSpareNodes = 256;
  BlockTree blocks;
  std::vector<BlockTree::node_type> spare;
  const bool is_small;
  int64_t requests = 0;  // counts searches, as the age of free blocks for garbage collection
};

// The settings that every request looks at, kept apart from c10's because reading those costs a call each.
// apply_settings copies them; c10 calls it after each change through the hook that NPUCachingAllocator.cpp registers.
struct Limits {
  std::atomic<size_t> max_split_size{std::numeric_limits<size_t>::max()};
  std::atomic<bool> round_to_power_of_two{false};
  std::atomic<bool> collect_garbage{false};
};
extern Limits limits;
void apply_settings();

class DeviceCachingAllocator {
 public:
  explicit DeviceCachingAllocator(DeviceIndex device) : device_(device) {}

  struct Allocation {
    void* ptr;
    size_t size;  // bytes, rounded
  };
  // The device must be active. Throws c10::OutOfMemoryError.
  Allocation malloc(size_t requested_size, const NPUStream& stream);
  // The bytes freed; 0 if the address is not that of an allocated block.
  size_t free(void* ptr) noexcept;
  // False if the address is not that of an allocated block.
  bool record_stream(void* ptr, const NPUStream& stream);
  void empty_cache();

  double memory_fraction();
  void set_memory_fraction(double fraction);
  size_t largest_free_block();
  // The segment that holds ptr: first address and bytes; nullopt when none of this device does.
  std::optional<std::pair<void*, size_t>> segment_of(const void* ptr);

  DeviceStats stats();
  void reset_accumulated_stats();
  void reset_peak_stats();

  std::vector<SegmentInfo> snapshot();
  std::vector<TraceEntry> trace();
  bool is_history_enabled();
  void record_history(bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear);
  void attach_oom_observer(const OutOfMemoryObserver& observer);

 private:
  BlockPool& pool_of(size_t size) { return size <= CachingAllocator::kSmallSize ? small_ : large_; }

  Block* make_block(const NPUStream& stream, size_t size, BlockPool* pool, void* ptr);
  void destroy_block(Block* block);
  Block* take_free_block(BlockPool& pool, size_t size, const NPUStream& stream);
  Block* make_segment(BlockPool& pool, size_t size, const NPUStream& stream, aclError* error);
  void use_block(Block* block, size_t size, size_t requested_size, std::shared_ptr<GatheredContext> context);
  bool should_split(const Block* block, size_t size) const;

  void free_block(Block* block);
  void defer_free(Block* block);
  void process_events(bool wait);

  bool release_for(BlockPool& pool, size_t size, const NPUStream& stream);
  bool release_cached_blocks();
  void collect_garbage();
  void release_segment(Block* block);
  void synchronize();

  [[noreturn]] void throw_out_of_memory(std::unique_lock<std::recursive_mutex>& lock, size_t size,
                                        size_t requested_size, aclError error, const NPUStream& stream);

  std::shared_ptr<GatheredContext> gather_context(RecordContext level);
  void trace_event(TraceEntry::Action action, const void* address, size_t size, const NPUStream& stream,
                   std::shared_ptr<GatheredContext> context);

  const DeviceIndex device_;
  std::recursive_mutex mutex_;
  BlockPool small_{/*is_small=*/true};
  BlockPool large_{/*is_small=*/false};
  ska::flat_hash_map<void*, Block*> allocated_;
  std::map<const void*, Block*> segments_;  // first block of each, by address
  std::unordered_map<NPUStream, std::deque<std::pair<NPUEvent, Block*>>> waiting_;
  std::vector<NPUEvent> spare_events_;
  std::vector<Block*> spare_blocks_;
  DeviceStats stats_;
  size_t reserved_ = 0;  // bytes of all segments
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
