#pragma once
// Prepared commands by key, so that a repeated operator builds no descriptors.

#include <ATen/native/npu/frame/command/Encoder.h>

namespace at::native::npu {

// One per thread: no locks. Bounded; when full it starts anew.
class PreparedCache {
 public:
  // The calling thread's cache.
  static PreparedCache& local();
  // Whether any thread has prepared a command yet.
  static bool any_prepared();

  PreparedCache() = default;
  PreparedCache(const PreparedCache&) = delete;
  PreparedCache& operator=(const PreparedCache&) = delete;
  ~PreparedCache() { delete[] slots_; }

  // The command of a key, prepared by its operator's encoder if it is new. The cache may drop it at the next call: keep
  // a reference for longer.
  Prepared& get(c10::IntArrayRef key);

 private:
  Prepared& insert(uint64_t hash, c10::IntArrayRef key);

  static constexpr size_t kSlots = 8192;  // a power of two
  static constexpr size_t kMostEntries = kSlots / 2;
  c10::intrusive_ptr<Prepared>* slots_ = nullptr;  // kSlots of them, made when first needed
  size_t size_ = 0;
};

}  // namespace at::native::npu
