#pragma once
// Hands out ranges of an interval: best fit, neighbours merge when freed. Not thread-safe; the owner locks.

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace [[gnu::visibility("hidden")]] acl_sim {

class Ranges {
 public:
  Ranges(size_t begin, size_t end) { insert(begin, end - begin); }

  std::optional<size_t> take(size_t size) {
    auto found = by_size_.lower_bound({size, 0});
    if (found == by_size_.end()) return std::nullopt;
    const auto [free_size, at] = *found;
    erase(at, free_size);
    if (free_size > size) insert(at + size, free_size - size);
    return at;
  }

  // Takes exactly [at, at + size) if it is free.
  bool take_at(size_t at, size_t size) {
    auto next = by_place_.upper_bound(at);
    if (next == by_place_.begin()) return false;
    const auto [begin, length] = *std::prev(next);
    if (begin + length < at + size) return false;
    erase(begin, length);
    if (at > begin) insert(begin, at - begin);
    if (begin + length > at + size) insert(at + size, begin + length - at - size);
    return true;
  }

  void give(size_t at, size_t size) {
    auto next = by_place_.lower_bound(at);
    if (next != by_place_.end() && next->first == at + size) {
      size += next->second;
      erase(next->first, next->second);
    }
    next = by_place_.lower_bound(at);
    if (next != by_place_.begin()) {
      const auto before = *std::prev(next);
      if (before.first + before.second == at) {
        erase(before.first, before.second);
        at = before.first;
        size += before.second;
      }
    }
    insert(at, size);
  }

 private:
  void insert(size_t at, size_t size) {
    by_place_.emplace(at, size);
    by_size_.emplace(size, at);
  }
  void erase(size_t at, size_t size) {
    by_place_.erase(at);
    by_size_.erase({size, at});
  }

  std::map<size_t, size_t> by_place_;            // start -> size
  std::set<std::pair<size_t, size_t>> by_size_;  // (size, start)
};

}  // namespace acl_sim
