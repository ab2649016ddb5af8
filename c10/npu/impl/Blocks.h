#pragma once
// What the allocator of one device keeps its books with: blocks, the pools of free ones, the hot ones, and which block
// lies at an address.

#include <c10/core/AllocatorConfig.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/util/flat_hash_map.h>

#include <array>
#include <bit>
#include <memory>
#include <set>
#include <vector>

namespace c10::npu::NPUCachingAllocator {

struct Block;
struct BlockPool;
class ExpandableSegment;

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
//
// Note [Hot blocks]
// Most small blocks are asked for again right after they were freed. So a few of each size are set aside as they are,
// neither joined with their neighbours nor put into the pool's tree, and handed out again to requests of exactly that
// size on the same stream. To everybody else they are what free blocks are: settle() joins them before another block is
// looked for, and before anything is reported or given back. So the same blocks are handed out as without them, except
// that the one freed last comes first. Of the statistics only the totals and peaks of "inactive_split" show a
// difference, since joins and splits that do not happen are not counted.
//
// Note [Private pools]
// A pool of its own (torch.npu.MemPool) is a pair of block pools beside the public pair. While a thread allocates to it
// (use_mem_pool), its requests take blocks of these only; a block returns to where it came from, whoever frees it. The
// pool lives until its last user has released it and its last segment has gone back. Its segments may come from an
// allocator of the user's.
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
  bool hot = false;         // see Note [Hot blocks]
  Block* colder = nullptr;  // the next hot block of the same size
  int event_count = 0;
  BlockTree::iterator where;                // in the pool's tree while the block is free
  int64_t birth = 0;                        // the pool's request count when the block became free
  std::vector<NPUStream> stream_uses;       // other streams that record_stream named
  ExpandableSegment* expandable = nullptr;  // the segment that its pages belong to, see ExpandableSegment.h
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
  explicit BlockPool(bool is_small, struct PrivatePool* owner = nullptr) : is_small(is_small), owner(owner) {}

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
  struct PrivatePool* const owner;  // null: public
  int64_t requests = 0;             // counts searches, as the age of free blocks for garbage collection
};

// See Note [Private pools].
struct PrivatePool {
  PrivatePool(MempoolId_t id, std::shared_ptr<NPUAllocator> source) : id(id), source(std::move(source)) {}

  const MempoolId_t id;
  const std::shared_ptr<NPUAllocator> source;  // null: the device
  int users = 0;
  size_t reserved = 0;  // bytes of its segments
  bool use_on_oom = false;
  bool no_split = false;
  BlockPool small{/*is_small=*/true, this};
  BlockPool large{/*is_small=*/false, this};
};

inline MempoolId_t id_of(const BlockPool& pool) { return pool.owner != nullptr ? pool.owner->id : kPublicPool; }

// See Note [Hot blocks].
class HotBlocks {
 public:
  // Null unless there is one of exactly this size, made for this stream.
  Block* take(size_t size, const NPUStream& stream) {
    if (size > kLargest) {
      return nullptr;
    }
    auto& list = lists_[size / CachingAllocator::kMinBlockSize];
    Block* block = list.first;
    if (block == nullptr || block->stream.id() != stream.id()) {
      return nullptr;
    }
    list.first = block->colder;
    --list.count;
    block->hot = false;
    return block;
  }

  // False if the block is not of a kind to be kept, or there are enough of its size.
  bool keep(Block* block) {
    if (block->size > kLargest || !block->pool->is_small || block->pool->owner != nullptr) {
      return false;
    }
    const size_t kind = block->size / CachingAllocator::kMinBlockSize;
    auto& list = lists_[kind];
    if (list.count >= kMost || (list.first != nullptr && list.first->stream.id() != block->stream.id())) {
      return false;
    }
    block->colder = list.first;
    list.first = block;
    ++list.count;
    kinds_[kind / 64] |= uint64_t{1} << kind % 64;
    block->hot = true;
    return true;
  }

  template <class F>
  void take_all(F&& visit) {
    for (size_t word = 0; word < kinds_.size(); ++word) {
      for (; kinds_[word] != 0; kinds_[word] &= kinds_[word] - 1) {
        auto& list = lists_[64 * word + static_cast<size_t>(std::countr_zero(kinds_[word]))];
        while (Block* block = list.first) {
          list.first = block->colder;
          block->hot = false;
          visit(block);
        }
        list.count = 0;
      }
    }
  }

 private:
  static constexpr size_t kLargest = size_t{64} << 10;  // bytes
  static constexpr uint32_t kMost = 8;                  // of one size
  struct List {
    Block* first = nullptr;
    uint32_t count = 0;
  };
  static constexpr size_t kKinds = kLargest / CachingAllocator::kMinBlockSize + 1;
  std::array<List, kKinds> lists_{};
  std::array<uint64_t, kKinds / 64 + 1> kinds_{};  // bit i is set if lists_[i] may hold some
};

// Blocks that have been handed out, by address; free ones stay until they are joined to another. Before the map lies a
// table of those that were looked for last.
class BlockAddresses {
 public:
  // The allocated block at the address, or null.
  Block* find(void* ptr) {
    Block*& recent = recent_[index(ptr)];
    if (C10_UNLIKELY(recent == nullptr || recent->ptr != ptr)) {
      const auto found = blocks_.find(ptr);
      if (found == blocks_.end()) {
        return nullptr;
      }
      recent = found->second;
    }
    return recent->allocated ? recent : nullptr;
  }

  // The block that begins at the address, whether it is allocated or not; null if none does.
  Block* find_any(const void* ptr) {
    const auto found = blocks_.find(const_cast<void*>(ptr));
    return found == blocks_.end() ? nullptr : found->second;
  }

  void remember(Block* block) {
    blocks_[block->ptr] = block;
    recent_[index(block->ptr)] = block;
  }

  void forget(Block* block) {
    blocks_.erase(block->ptr);
    if (Block*& recent = recent_[index(block->ptr)]; recent == block) {
      recent = nullptr;
    }
  }

 private:
  static constexpr size_t kRecent = 256;
  static size_t index(const void* ptr) {
    return reinterpret_cast<uintptr_t>(ptr) / CachingAllocator::kMinBlockSize % kRecent;
  }
  ska::flat_hash_map<void*, Block*> blocks_;
  std::array<Block*, kRecent> recent_{};
};

}  // namespace c10::npu::NPUCachingAllocator
