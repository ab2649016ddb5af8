// One ordered map of address ranges.

#include <c10/npu/impl/PinnedRanges.h>

#include <map>
#include <mutex>

namespace c10::npu::impl {

namespace {

struct Ranges {
  std::mutex mutex;
  std::map<const char*, size_t> bytes;  // by first address
};

// Never destroyed: tensors may be freed during static destruction.
Ranges& ranges() {
  static auto* instance = new Ranges;
  return *instance;
}

}  // namespace

void add_pinned_range(const void* begin, size_t bytes) {
  Ranges& r = ranges();
  const std::lock_guard lock(r.mutex);
  r.bytes.emplace(static_cast<const char*>(begin), bytes);
}

void remove_pinned_range(const void* begin) {
  Ranges& r = ranges();
  const std::lock_guard lock(r.mutex);
  r.bytes.erase(static_cast<const char*>(begin));
}

bool is_pinned(const void* address) {
  Ranges& r = ranges();
  const std::lock_guard lock(r.mutex);
  auto it = r.bytes.upper_bound(static_cast<const char*>(address));
  if (it == r.bytes.begin()) {
    return false;
  }
  --it;
  return static_cast<const char*>(address) < it->first + it->second;
}

}  // namespace c10::npu::impl
