#include "exec/running/scratch.h"

#include "core/error.h"
#include "core/ranges.h"
#include "core/thread_local.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace acl_sim {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kArena = size_t{256} << 30;  // addresses, not memory
constexpr size_t kKept = size_t{1} << 30;     // pages that idle scratch may keep; more goes back to the host
constexpr size_t kSmall = size_t{64} << 10;   // below: size classes without a search
constexpr size_t kHugePage = size_t{2} << 20;

struct Placement {
  void* place = nullptr;
  size_t bytes = 0;
};

SIM_THREAD_LOCAL bool executing = false;
SIM_THREAD_LOCAL Placement placement;
// Places handed out during this execution. A kernel that allocates through raw_allocate frees with the raw deleter,
// which must know them from memory of its own.
thread_local std::vector<void*> placed;
SIM_THREAD_LOCAL bool has_placed = false;

class Pool {
 public:
  Pool() : ranges_(0, kArena) {
    void* at = ::mmap(nullptr, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw Error(ACL_ERROR_RT_MEMORY_ALLOCATION, "cannot reserve addresses for scratch memory");
    base_ = static_cast<char*>(at);
    ::madvise(base_, kArena, MADV_HUGEPAGE);
    ::madvise(base_, kArena, MADV_DONTFORK);
  }

  bool owns(const void* p) const { return static_cast<size_t>(static_cast<const char*>(p) - base_) < kArena; }

  void* take(size_t bytes) {
    const size_t size = round(bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    used_ += size;
    if (used_ > peak_) peak_ = used_;
    if (size <= kSmall) {
      auto& free = small_[size / kAlign];
      if (!free.empty()) {
        const size_t at = free.back();
        free.pop_back();
        return base_ + at;
      }
    }
    const auto at = ranges_.take(size);
    if (!at) throw std::bad_alloc();
    sizes_[*at] = size;
    return base_ + *at;
  }

  void give(void* p) {
    const auto at = static_cast<size_t>(static_cast<char*>(p) - base_);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sizes_.find(at);
    if (found == sizes_.end()) return;
    const size_t size = found->second;
    used_ -= size;
    if (size <= kSmall) {
      small_[size / kAlign].push_back(at);  // its entry in sizes_ stays
      return;
    }
    sizes_.erase(found);
    ranges_.give(at, size);
    // Best fit keeps what is used low in the arena; pages above the bound go back when they are free.
    if (at + size > kKept) {
      const size_t from = at > kKept ? at : kKept;
      ::madvise(base_ + from, at + size - from, MADV_DONTNEED);
    }
  }

  void usage(size_t* used, size_t* peak) {
    std::lock_guard<std::mutex> lock(mutex_);
    *used = used_;
    *peak = peak_;
  }

 private:
  static size_t round(size_t bytes) {
    if (bytes <= kSmall) {
      // Powers of two and the steps half-way, so that few classes serve all.
      size_t size = kAlign;
      while (size < bytes) size *= 2;
      return size > 2 * kAlign && size / 4 * 3 >= bytes ? size / 4 * 3 : size;
    }
    const size_t unit = bytes >= kHugePage ? kHugePage : kSmall;
    return (bytes + unit - 1) / unit * unit;
  }

  char* base_;
  std::mutex mutex_;
  Ranges ranges_;
  std::unordered_map<size_t, size_t> sizes_;
  std::vector<size_t> small_[kSmall / kAlign + 1];
  size_t used_ = 0, peak_ = 0;
};

Pool& pool() {
  static auto* value = new Pool;
  return *value;
}

class ScratchAllocator final : public c10::Allocator {
 public:
  explicit ScratchAllocator(c10::Allocator* host) : host_(host) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (__builtin_expect(!executing, 1)) return host_->allocate(bytes);
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    if (placement.bytes == bytes) {
      void* place = placement.place;
      placement = {};
      placed.push_back(place);
      has_placed = true;
      return {place, place, &leave, cpu};
    }
    void* p = pool().take(bytes);
    return {p, p, &release, cpu};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }

  static void leave(void*) {}
  static void release(void* p);

 private:
  c10::Allocator* host_;
};

std::atomic<c10::DeleterFnPtr> host_deleter{nullptr};

void ScratchAllocator::release(void* p) {
  if (!p) return;
  if (pool().owns(p)) {
    pool().give(p);
  } else if (has_placed && std::find(placed.begin(), placed.end(), p) != placed.end()) {
    return;
  } else if (auto deleter = host_deleter.load(std::memory_order_relaxed)) {
    deleter(p);
  }
}

}  // namespace

void install_scratch_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    pool();
    auto* host = c10::GetAllocator(c10::DeviceType::CPU);
    host_deleter.store(host->raw_deleter());
    static auto* ours = new ScratchAllocator(host);
    c10::SetCPUAllocator(ours, std::numeric_limits<uint8_t>::max());
  });
}

ScratchScope::ScratchScope() : before_(executing) { executing = true; }
ScratchScope::~ScratchScope() {
  executing = before_;
  placement = {};
  if (__builtin_expect(!before_ && has_placed, 0)) {
    placed.clear();
    has_placed = false;
  }
}

void place_next_allocation(void* place, size_t bytes) { placement = {place, bytes}; }
void forget_placement() { placement = {}; }

void* take_scratch(size_t bytes) { return pool().take(bytes); }
void give_scratch(void* block) {
  if (block) pool().give(block);
}

void scratch_usage(size_t* used, size_t* peak) { pool().usage(used, peak); }

}  // namespace acl_sim
