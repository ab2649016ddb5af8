#pragma once
// ACL descriptors and attributes of commands seen before, found by a key of plain words, so that a repeated
// operator builds none.

#include <acl/acl.h>

#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <vector>

namespace at::native::npu {

using KeyWords = c10::SmallVector<int64_t, 64>;

// The descriptors of one command. Immutable once built, shared by the cache and by tasks in the queue.
class Prepared final : public c10::intrusive_ptr_target {
 public:
  ~Prepared() override;
  uint64_t hash = 0;
  std::vector<int64_t> key;
  std::vector<const aclTensorDesc*> inputs;
  std::vector<const aclTensorDesc*> outputs;
  aclopAttr* attributes = nullptr;
};

// One per thread: no locks. Bounded; when full it starts anew.
class DescriptorCache {
 public:
  // The calling thread's cache.
  static DescriptorCache& local();

  static uint64_t hash_of(const KeyWords& key);
  // Null if the command is new.
  Prepared* find(uint64_t hash, const KeyWords& key);
  Prepared* insert(c10::intrusive_ptr<Prepared> prepared);

 private:
  static constexpr size_t kSlots = 8192;  // a power of two
  static constexpr size_t kMostEntries = kSlots / 2;
  std::vector<c10::intrusive_ptr<Prepared>> slots_;
  size_t size_ = 0;
};

}  // namespace at::native::npu
