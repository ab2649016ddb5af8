#include "exec/compilation/compile_cache.h"

#include "core/stream.h"
#include "exec/compilation/choice.h"
#include "exec/compilation/fuzzy.h"
#include "exec/compilation/options.h"

#include <c10/util/SmallVector.h>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace acl_sim {

namespace detail {

std::atomic<uint64_t> generation{1};

}  // namespace detail

namespace {

using detail::ThreadMark;
using Key = c10::SmallVector<uint64_t, 96>;

// About 1 KiB each.
constexpr size_t kMostOps = 16384;

// ---- keys

inline uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15ULL) * (b ^ 0xD6E8FEB86659FD93ULL);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_of(const uint64_t* words, size_t count) {
  uint64_t h = count;
  for (size_t i = 0; i < count; ++i) h = mix(h + words[i], words[i] + i);
  return h;
}

void add_desc(Key& key, const Description& d, const aclTensorDesc* desc, const char* kind, int i) {
  if (__builtin_expect(!desc || !desc->valid(), 0)) {
    throw Error(ACL_ERROR_INVALID_PARAM, format("%s: the description of %s %d is %s", d.type, kind, i,
                                                desc ? "not a live aclTensorDesc" : "null"));
  }
  key.push_back(static_cast<uint64_t>(static_cast<uint8_t>(desc->dtype + 1)) |
                static_cast<uint64_t>(static_cast<uint8_t>(desc->format + 1)) << 8 |
                static_cast<uint64_t>(desc->placement != ACL_MEMTYPE_DEVICE) << 16 |
                static_cast<uint64_t>(desc->ndim) << 24);
  const int64_t* dims = desc->dims();
  for (int k = 0; k < desc->ndim; ++k) key.push_back(static_cast<uint64_t>(dims[k]));
}

// One that rounds, or is forced to compute in another way, is another operator.
void make_key(Key& key, const Description& d, CubeRounding rounding) {
  const size_t length = std::strlen(d.type);
  if (length > 255) throw Error(ACL_ERROR_INVALID_PARAM, "the operator type has more than 255 characters");
  key.push_back(static_cast<uint64_t>(length) | static_cast<uint64_t>(d.inputs) << 16 |
                static_cast<uint64_t>(d.outputs) << 40 | static_cast<uint64_t>(rounding) << 62);
  for (size_t at = 0; at < length; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, d.type + at, length - at < 8 ? length - at : 8);
    key.push_back(word);
  }
  for (int i = 0; i < d.inputs; ++i) add_desc(key, d, d.input[i], "input", i);
  for (int i = 0; i < d.outputs; ++i) add_desc(key, d, d.output[i], "output", i);
  if (d.attr) key.append(d.attr->words.data(), d.attr->words.data() + d.attr->used / 8);
  if (const uint32_t forced = forced_choice(); __builtin_expect(forced != 0, 0)) key.push_back(forced);
}

bool same(const CompiledOp& op, uint64_t hash, const Key& key) {
  return op.hash == hash && op.key.size() == key.size() && std::memcmp(op.key.data(), key.data(), key.size() * 8) == 0;
}

// ---- the table of all

struct Shard {
  std::mutex mutex;
  std::unordered_multimap<uint64_t, CompiledOp*> ops;
};
constexpr size_t kShards = 16;

struct Table {
  Shard shards[kShards];
  std::atomic<size_t> size{0}, retired{0};
  std::atomic<size_t> limit{kMostOps};
};

Table& table() {
  static auto* value = new Table;  // outlives the threads that still run while the process exits
  return *value;
}

// ---- each thread's small tables

// A description by the stamps of its descriptors and attributes.
struct Memo {
  static constexpr int kOperands = 6;
  const CompiledOp* op = nullptr;
  int inputs = 0, outputs = 0;
  uint64_t attributes = 0;
  uint64_t stamps[kOperands];  // inputs, outputs

  bool is_of(const Description& d) const {
    if (!op || inputs != d.inputs || outputs != d.outputs || attributes != (d.attr ? d.attr->stamp : 0)) return false;
    const uint64_t* stamp = stamps;
    for (int i = 0; i < d.inputs; ++i) {
      if (!d.input[i] || !d.input[i]->valid() || d.input[i]->stamp != *stamp++) return false;
    }
    for (int i = 0; i < d.outputs; ++i) {
      if (!d.output[i] || !d.output[i]->valid() || d.output[i]->stamp != *stamp++) return false;
    }
    return std::strcmp(op->def->type.c_str(), d.type) == 0;
  }
  // For a description that find_or_compile() has found to be in order.
  void keep(const Description& d, const CompiledOp& found) {
    op = &found;
    inputs = d.inputs;
    outputs = d.outputs;
    attributes = d.attr ? d.attr->stamp : 0;
    uint64_t* stamp = stamps;
    for (int i = 0; i < d.inputs; ++i) *stamp++ = d.input[i]->stamp;
    for (int i = 0; i < d.outputs; ++i) *stamp++ = d.output[i]->stamp;
  }
};

struct ThreadTables : ThreadMark {
  static constexpr size_t kMemos = 512, kRecent = 1024;
  Memo memos[kMemos];
  const CompiledOp* recent[kRecent] = {};

  // Null for descriptions that are not told apart by the first output.
  Memo* memo_of(const Description& d) {
    if (d.inputs + d.outputs > Memo::kOperands || d.outputs < 1 || !d.output[0]) return nullptr;
    return &memos[d.output[0]->stamp * 0x9E3779B97F4A7C15ULL >> 55];
  }
};
static_assert(ThreadTables::kMemos == size_t{1} << (64 - 55));

struct Threads {
  std::mutex mutex;
  std::vector<ThreadTables*> all;
};

Threads& threads() {
  static auto* value = new Threads;
  return *value;
}

// Takes a thread's tables away when it ends. What still launches afterwards gets some that stay.
struct ThreadEnd {
  ~ThreadEnd() {
    auto& t = threads();
    std::lock_guard<std::mutex> lock(t.mutex);
    std::erase(t.all, static_cast<ThreadTables*>(detail::thread_mark));
    delete static_cast<ThreadTables*>(detail::thread_mark);
    detail::thread_mark = nullptr;
  }
};

// ---- eviction

struct Retired {
  uint64_t generation;  // threads whose tables are as new do not know them
  std::vector<std::unique_ptr<CompiledOp>> ops;
  std::vector<StreamMark> queued;  // set once no thread can submit them any more
  bool unknown = false;            // to all threads
};

struct Evictions {
  std::mutex mutex;
  std::vector<Retired> waiting;
};

Evictions& evictions() {
  static auto* value = new Evictions;
  return *value;
}

// Makes what other threads have noted visible here.
void barrier_for_all_threads() {
  static const bool registered = ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  if (registered) ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  // The call is a barrier of the processor's; the compiler has to keep the order, too.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// The oldest generation that a thread inside a launch works with.
uint64_t oldest_generation() {
  barrier_for_all_threads();
  uint64_t oldest = detail::generation.load();
  auto& t = threads();
  std::lock_guard<std::mutex> lock(t.mutex);
  for (const ThreadTables* tables : t.all) {
    if (tables->inside.load(std::memory_order_acquire)) oldest = std::min(oldest, tables->generation.load());
  }
  return oldest;
}

void free_retired(std::vector<Retired>& waiting) {
  const uint64_t oldest = oldest_generation();
  for (auto& retired : waiting) {
    if (retired.unknown) {
      if (!have_passed(retired.queued)) continue;
      // What a launch has put into a graph between the drop and the first step stays as long as the graph.
      const size_t freed = std::erase_if(retired.ops, [](const auto& op) { return op->pins.load() == 0; });
      table().retired.fetch_sub(freed, std::memory_order_relaxed);
    } else if (retired.generation <= oldest) {
      retired.unknown = true;
      retired.queued = mark_streams();
    }
  }
  std::erase_if(waiting, [](const Retired& retired) { return retired.ops.empty(); });
}

// Takes out what has not been used since the last eviction, and more if that is less than a quarter.
void evict() {
  auto& e = evictions();
  std::unique_lock<std::mutex> lock(e.mutex, std::try_to_lock);
  if (!lock) return;  // another thread does it
  free_retired(e.waiting);
  auto& all = table();
  const uint64_t now = detail::generation.load();
  const size_t wanted = all.limit.load() / 4 * 3;
  Retired retired{now + 1, {}, {}, false};
  for (const bool any : {false, true}) {
    for (auto& shard : all.shards) {
      std::lock_guard<std::mutex> shard_lock(shard.mutex);
      for (auto it = shard.ops.begin(); it != shard.ops.end();) {
        CompiledOp* op = it->second;
        const bool out = all.size.load(std::memory_order_relaxed) > wanted && !op->kept && op->pins.load() == 0 &&
                         (any || op->used.load(std::memory_order_relaxed) < now);
        if (!out) {
          ++it;
          continue;
        }
        retired.ops.emplace_back(op);
        it = shard.ops.erase(it);
        all.size.fetch_sub(1, std::memory_order_relaxed);
      }
    }
  }
  // What cannot be evicted must not be looked through at every compilation.
  all.limit.store(std::max(kMostOps, all.size.load() / 3 * 4));
  detail::generation.store(now + 1);
  all.retired.fetch_add(retired.ops.size(), std::memory_order_relaxed);
  e.waiting.push_back(std::move(retired));
}

// ---- looking up

const CompiledOp& find_or_compile(const Description& d, ThreadTables& mine, bool only_known, bool keep, bool* fresh) {
  const CubeRounding rounding = cube_rounding(d.type);
  Key key;
  make_key(key, d, rounding);
  const uint64_t hash = hash_of(key.data(), key.size());
  const CompiledOp*& recent = mine.recent[hash % ThreadTables::kRecent];
  if (recent && same(*recent, hash, key) && !keep) return *recent;
  auto& all = table();
  auto& shard = all.shards[hash >> 60];
  std::unique_lock<std::mutex> lock(shard.mutex);
  const auto [begin, end] = shard.ops.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (!same(*it->second, hash, key)) continue;
    it->second->kept = it->second->kept || keep;
    return *(recent = it->second);
  }
  if (only_known)
    throw Error(ACL_ERROR_OP_NOT_FOUND,
                format("%s has not been compiled for these operands; call aclopCompile first", d.type));
  auto op = compile(d, rounding);
  op->hash = hash;
  op->key.assign(key.begin(), key.end());
  op->kept = keep;
  op->used.store(mine.generation.load(std::memory_order_relaxed), std::memory_order_relaxed);
  *fresh = needs_compilation(*op);
  recent = op.get();
  shard.ops.emplace(hash, op.get());
  const CompiledOp& made = *op.release();
  lock.unlock();
  if (all.size.fetch_add(1, std::memory_order_relaxed) >= all.limit.load(std::memory_order_relaxed)) evict();
  return made;
}

inline void note_use(const CompiledOp& op, const ThreadMark& mark) {
  const uint64_t now = mark.generation.load(std::memory_order_relaxed);
  if (__builtin_expect(op.used.load(std::memory_order_relaxed) != now, 0))
    op.used.store(now, std::memory_order_relaxed);
}

}  // namespace

namespace detail {

ThreadMark* make_thread_mark() {
  static thread_local ThreadEnd end;
  (void)end;
  auto* tables = new ThreadTables;
  tables->generation.store(generation.load());
  thread_mark = tables;
  auto& t = threads();
  std::lock_guard<std::mutex> lock(t.mutex);
  t.all.push_back(tables);
  return tables;
}

void empty_thread_tables(ThreadMark& mark, uint64_t generation) {
  auto& tables = static_cast<ThreadTables&>(mark);
  for (auto& memo : tables.memos) memo.op = nullptr;
  for (auto& recent : tables.recent) recent = nullptr;
  mark.generation.store(generation, std::memory_order_release);
}

}  // namespace detail

const CompiledOp& LaunchScope::find(const Description& d, bool only_known, bool* fresh) {
  auto& mine = static_cast<ThreadTables&>(mark_);
  Memo* memo = mine.memo_of(d);
  if (__builtin_expect(memo && memo->is_of(d), 1)) {
    note_use(*memo->op, mark_);
    return *memo->op;
  }
  const CompiledOp& op = find_or_compile(d, mine, only_known, /*keep=*/false, fresh);
  note_use(op, mark_);
  // A description that is launched once only must not push one out that comes again.
  if (memo && d.output[0]->launched.exchange(true, std::memory_order_relaxed)) memo->keep(d, op);
  return op;
}

const CompiledOp& LaunchScope::find_and_keep(const Description& d, bool* fresh) {
  return find_or_compile(d, static_cast<ThreadTables&>(mark_), /*only_known=*/false, /*keep=*/true, fresh);
}

void look_up_again() {
  const std::lock_guard<std::mutex> lock(evictions().mutex);
  detail::generation.store(detail::generation.load() + 1);
}

uint64_t compiled_ops() { return table().size.load() + table().retired.load(); }

}  // namespace acl_sim
