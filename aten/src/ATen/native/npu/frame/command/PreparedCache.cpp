// Look-up of prepared commands.

#include <ATen/native/npu/frame/command/PreparedCache.h>

#include <ATen/native/npu/frame/command/Missing.h>

#include <c10/npu/NPUFunctions.h>

#include <algorithm>
#include <atomic>

namespace at::native::npu {

namespace {

std::atomic<bool> prepared_one{false};

uint64_t hash_of(c10::IntArrayRef key) {
  // Independent products, so that they overlap; odd multipliers that differ keep the order of words.
  constexpr uint64_t kStep = 0x9E3779B97F4A7C16ULL;
  uint64_t multiplier = 0xFF51AFD7ED558CCDULL;
  uint64_t h = key.size();
  for (const int64_t word : key) {
    h += (static_cast<uint64_t>(word) ^ (static_cast<uint64_t>(word) >> 32)) * multiplier;
    multiplier += kStep;
  }
  h ^= h >> 29;
  h *= 0xBF58476D1CE4E5B9ULL;
  return h ^ h >> 32;
}

thread_local PreparedCache* own_cache __attribute__((tls_model("initial-exec"))) = nullptr;

// Takes a thread's cache away when the thread ends, but not at the end of the process, when ACL may be gone already,
// nor in a forked child, where its locks may be held for ever. What launches still later gets one that stays.
struct CacheEnd {
  ~CacheEnd() {
    if (!c10::npu::is_shut_down() && !c10::npu::is_in_bad_fork()) delete own_cache;
    own_cache = nullptr;
  }
};

}  // namespace

bool PreparedCache::any_prepared() { return prepared_one.load(); }

PreparedCache& PreparedCache::local() {
  if (C10_UNLIKELY(own_cache == nullptr)) {
    static thread_local CacheEnd end;
    static_cast<void>(end);
    own_cache = new PreparedCache();
  }
  return *own_cache;
}

Prepared& PreparedCache::get(c10::IntArrayRef key) {
  const uint64_t hash = hash_of(key);
  if (C10_LIKELY(slots_ != nullptr)) {
    for (size_t i = hash & (kSlots - 1);; i = (i + 1) & (kSlots - 1)) {
      Prepared* entry = slots_[i].get();
      if (C10_UNLIKELY(entry == nullptr)) break;
      if (C10_LIKELY(entry->is(hash, key))) return *entry;
    }
  }
  return insert(hash, key);
}

Prepared& PreparedCache::insert(uint64_t hash, c10::IntArrayRef key) {
  // Every operator comes by here before its first launch: Note [What a card has].
  const auto* const ir = reinterpret_cast<const char*>(key[0]);
  if (lacks(ir)) throw MissingOperator(ir);
  prepared_one.store(true);
  auto prepared = encoder_of(ir).prepare(hash, key);
  if (slots_ == nullptr) {
    slots_ = new c10::intrusive_ptr<Prepared>[kSlots];
  } else if (size_ >= kMostEntries) {
    std::for_each(slots_, slots_ + kSlots, [](auto& slot) { slot.reset(); });
    size_ = 0;
  }
  size_t i = hash & (kSlots - 1);
  while (slots_[i]) i = (i + 1) & (kSlots - 1);
  slots_[i] = std::move(prepared);
  ++size_;
  return *slots_[i];
}

}  // namespace at::native::npu
