#include "core/pinned.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>

#include <sys/mman.h>

namespace acl_sim {
namespace {

constexpr size_t kPage = 4096;

struct Table {
  std::mutex mutex;
  std::map<const char*, size_t> blocks;
  // Where blocks have ever been: most host addresses are outside, and need no lock.
  std::atomic<const char*> lowest{reinterpret_cast<const char*>(UINTPTR_MAX)}, highest{nullptr};
};

Table& table() {
  static auto* value = new Table;
  return *value;
}

}  // namespace

void* pinned_malloc(size_t size) {
  const size_t whole = (size + kPage - 1) / kPage * kPage;
  void* p = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  auto& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  const char* begin = static_cast<const char*>(p);
  t.blocks.emplace(begin, whole);
  if (begin < t.lowest.load()) t.lowest.store(begin);
  if (begin + whole > t.highest.load()) t.highest.store(begin + whole);
  return p;
}

bool pinned_free(void* pointer) {
  auto& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  const auto found = t.blocks.find(static_cast<const char*>(pointer));
  if (found == t.blocks.end()) return false;
  ::munmap(pointer, found->second);
  t.blocks.erase(found);
  return true;
}

bool is_pinned(const void* address) {
  auto& t = table();
  if (static_cast<const char*>(address) < t.lowest.load() || static_cast<const char*>(address) >= t.highest.load())
    return false;
  std::lock_guard<std::mutex> lock(t.mutex);
  auto next = t.blocks.upper_bound(static_cast<const char*>(address));
  if (next == t.blocks.begin()) return false;
  --next;
  return static_cast<const char*>(address) < next->first + next->second;
}

}  // namespace acl_sim
