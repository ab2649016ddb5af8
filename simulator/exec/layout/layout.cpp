// See layout.h.

#include "exec/layout/layout.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/executor.h"
#include "core/load.h"
#include "exec/layout/turn.h"

namespace acl_sim {
namespace {

void turn_samples(const void* from, void* to, int64_t n, int64_t rows, int64_t columns, size_t element_bytes) {
  constexpr int64_t kGrain = int64_t{1} << 15;  // elements
  constexpr int64_t kTile = 16;                 // rows that turn() takes at a time
  const int64_t elements = rows * columns;
  if (n * elements == 0) {
    return;
  }
  // Large samples are split into bands of rows, so that a single one has work for all threads.
  const int64_t tiles = std::max<int64_t>(1, kGrain / (columns * kTile));
  const int64_t band = std::min(rows, tiles * kTile), bands = (rows + band - 1) / band;
  const int64_t grain = grain_of_copies(kGrain) / (band * columns);
  at::parallel_for(0, n * bands, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t sample = static_cast<size_t>(i / bands * elements) * element_bytes;
      const int64_t first = i % bands * band;
      turn(static_cast<const char*>(from) + sample, static_cast<char*>(to) + sample, rows, columns, first,
           std::min(rows, first + band), element_bytes);
    }
  });
}

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

std::array<int64_t, 4> channels_last_strides(at::IntArrayRef dims) {
  return {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
}

void rows_to_planes(const void* rows, void* planes, int64_t n, int64_t channels, int64_t area, size_t element_bytes) {
  turn_samples(rows, planes, n, area, channels, element_bytes);
}

void planes_to_rows(const void* planes, void* rows, int64_t n, int64_t channels, int64_t area, size_t element_bytes) {
  turn_samples(planes, rows, n, channels, area, element_bytes);
}

bool LayoutMap::may_hold_tags(const void* p, size_t bytes) const {
  if (bytes == 0) {
    return false;
  }
  const uintptr_t first = address(p) >> kPageBits, last = (address(p) + bytes - 1) >> kPageBits;
  if (last - first >= 64) {
    return true;
  }
  for (uintptr_t page = first; page <= last; ++page) {
    if (pages_[page % kPages].load(std::memory_order_relaxed) != 0) {
      return true;
    }
  }
  return false;
}

void LayoutMap::count_pages(uintptr_t base, size_t bytes, uint32_t delta) {
  for (uintptr_t page = base >> kPageBits; page <= (base + bytes - 1) >> kPageBits; ++page) {
    pages_[page % kPages].fetch_add(delta, std::memory_order_relaxed);
  }
}

void LayoutMap::insert(uintptr_t base, const Tag& tag) {
  if (tag.samples > 0) {
    tags_.emplace(base, tag);
    count_pages(base, tag.bytes(), 1);
  }
}

void LayoutMap::erase(Tags::iterator it) {
  count_pages(it->first, it->second.bytes(), static_cast<uint32_t>(-1));
  tags_.erase(it);
}

LayoutMap::Tags::const_iterator LayoutMap::first_overlap(uintptr_t begin, uintptr_t end) const {
  auto it = tags_.upper_bound(begin);
  if (it != tags_.begin()) {
    auto before = std::prev(it);
    if (before->first + before->second.bytes() > begin) {
      return before;
    }
  }
  return it != tags_.end() && it->first < end ? it : tags_.end();
}

bool LayoutMap::any(const void* p, size_t bytes) const {
  if (!may_hold_tags(p, bytes)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  return first_overlap(address(p), address(p) + bytes) != tags_.end();
}

bool LayoutMap::channels_last(const void* p, at::IntArrayRef dims, size_t element_bytes) const {
  return dims.size() == 4 && turned(p, Planes{dims[0], dims[1], dims[2] * dims[3]}, element_bytes);
}

bool LayoutMap::turned(const void* p, const Planes& planes, size_t element_bytes) const {
  const Tag wanted{planes.samples, planes.channels, planes.area, element_bytes};
  if (!may_hold_tags(p, wanted.bytes())) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  uintptr_t at = address(p);
  const uintptr_t end = at + wanted.bytes();
  // Neighbouring tags of the same samples count as one.
  while (at < end) {
    const auto it = first_overlap(at, at + 1);
    if (it == tags_.end() || it->second.channels != wanted.channels || it->second.area != wanted.area ||
        it->second.element_bytes != element_bytes || (at - it->first) % wanted.sample_bytes() != 0) {
      return false;
    }
    at = it->first + it->second.bytes();
  }
  return true;
}

void LayoutMap::read(const void* p, size_t bytes, void* to) const {
  const uintptr_t begin = address(p), end = begin + bytes;
  char* const target = static_cast<char*>(to);
  std::vector<std::pair<uintptr_t, Tag>> overlaps;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = first_overlap(begin, end); it != tags_.end() && it->first < end; ++it) {
      overlaps.emplace_back(*it);
    }
  }
  uintptr_t at = begin;
  std::vector<char> whole;
  for (const auto& [base, tag] : overlaps) {
    if (base > at) {
      std::memcpy(target + (at - begin), reinterpret_cast<const void*>(at), base - at);
      at = base;
    }
    const size_t size = tag.sample_bytes();
    const uintptr_t stop = std::min(end, base + tag.bytes());
    while (at < stop) {
      const uintptr_t sample = base + (at - base) / size * size;
      if (at == sample && stop - at >= size) {
        const int64_t n = static_cast<int64_t>((stop - at) / size);
        rows_to_planes(reinterpret_cast<const void*>(at), target + (at - begin), n, tag.channels, tag.area,
                       tag.element_bytes);
        at += static_cast<size_t>(n) * size;
      } else {
        whole.resize(size);
        rows_to_planes(reinterpret_cast<const void*>(sample), whole.data(), 1, tag.channels, tag.area,
                       tag.element_bytes);
        const uintptr_t part_end = std::min(stop, sample + size);
        std::memcpy(target + (at - begin), whole.data() + (at - sample), part_end - at);
        at = part_end;
      }
    }
  }
  if (at < end) {
    std::memcpy(target + (at - begin), reinterpret_cast<const void*>(at), end - at);
  }
}

std::optional<LayoutMap::Inside> LayoutMap::inside(uintptr_t begin, uintptr_t end) const {
  Inside found;
  const std::lock_guard lock(mutex_);
  for (auto it = first_overlap(begin, end); it != tags_.end() && it->first < end; ++it) {
    const auto& [base, tag] = *it;
    const size_t size = tag.sample_bytes();
    const uintptr_t first = std::max(base, begin), last = std::min(base + tag.bytes(), end);
    if ((first - base) % size != 0 || (last - base) % size != 0) return std::nullopt;
    Tag part = tag;
    part.samples = static_cast<int64_t>((last - first) / size);
    if (!found.empty()) {
      auto& [place, before] = found.back();
      if (begin + place + before.bytes() == first && before.channels == tag.channels && before.area == tag.area &&
          before.element_bytes == tag.element_bytes) {
        before.samples += part.samples;
        continue;
      }
    }
    found.emplace_back(first - begin, part);
  }
  return found;
}

bool LayoutMap::copy(const void* p, size_t bytes, void* to, LayoutMap& map) const {
  const auto tags = inside(address(p), address(p) + bytes);
  if (!tags) {
    return false;
  }
  copy_bytes(to, p, bytes);
  const std::lock_guard lock(map.mutex_);
  for (const auto& [place, tag] : *tags) map.insert(address(to) + place, tag);
  return true;
}

uint64_t LayoutMap::order(const void* p, size_t bytes) const {
  if (!may_hold_tags(p, bytes)) {
    return 0;
  }
  const auto tags = inside(address(p), address(p) + bytes);
  if (!tags) {
    return kMixed;
  }
  uint64_t number = 0;
  for (const auto& [place, tag] : *tags) {
    for (const uint64_t part :
         {uint64_t{place}, static_cast<uint64_t>(tag.samples), static_cast<uint64_t>(tag.channels),
          static_cast<uint64_t>(tag.area), uint64_t{tag.element_bytes}}) {
      // As splitmix64 mixes its state.
      number += part + 0x9e3779b97f4a7c15;
      number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
      number = (number ^ number >> 27) * 0x94d049bb133111eb;
      number ^= number >> 31;
    }
  }
  return tags->empty() ? 0 : std::clamp<uint64_t>(number, 1, kMixed - 1);
}

// Takes the tags out of a range. Samples whose content must survive are reordered: all of them with keep_content, else
// those that reach beyond the range.
void LayoutMap::drop(uintptr_t begin, uintptr_t end, bool keep_content) {
  const std::lock_guard lock(mutex_);
  for (;;) {
    const auto found = first_overlap(begin, end);
    if (found == tags_.end()) {
      return;
    }
    const uintptr_t base = found->first;
    const Tag tag = found->second;
    const size_t size = tag.sample_bytes();
    const int64_t from = begin > base ? static_cast<int64_t>((begin - base) / size) : 0;
    const int64_t to = std::min<int64_t>(tag.samples, static_cast<int64_t>((end - base + size - 1) / size));
    for (int64_t i = from; i < to; ++i) {
      const uintptr_t sample = base + static_cast<size_t>(i) * size;
      if (keep_content || sample < begin || sample + size > end) {
        const std::unique_ptr<void, void (*)(void*)> copy(take_scratch(size), give_scratch);
        std::memcpy(copy.get(), reinterpret_cast<const void*>(sample), size);
        rows_to_planes(copy.get(), reinterpret_cast<void*>(sample), 1, tag.channels, tag.area, tag.element_bytes);
      }
    }
    erase(tags_.find(base));
    insert(base, {from, tag.channels, tag.area, tag.element_bytes});
    insert(base + static_cast<size_t>(to) * size, {tag.samples - to, tag.channels, tag.area, tag.element_bytes});
  }
}

bool LayoutMap::reaches_out(uintptr_t at, uintptr_t begin, uintptr_t end) const {
  const std::lock_guard lock(mutex_);
  const auto it = first_overlap(at, at + 1);
  if (it == tags_.end()) {
    return false;
  }
  const size_t size = it->second.sample_bytes();
  const uintptr_t sample = it->first + (at - it->first) / size * size;
  return sample < begin || sample + size > end;
}

void LayoutMap::free_borders(void* p, size_t bytes) {
  if (!may_hold_tags(p, bytes)) {
    return;
  }
  const uintptr_t begin = address(p), end = begin + bytes;
  for (const uintptr_t at : {begin, end - 1}) {
    if (reaches_out(at, begin, end)) {
      const std::unique_lock alone(content_);
      drop(at, at + 1, true);
    }
  }
}

void LayoutMap::forget(void* p, size_t bytes) {
  if (may_hold_tags(p, bytes)) {
    drop(address(p), address(p) + bytes, false);
  }
}

void LayoutMap::make_plain(void* p, size_t bytes) {
  if (may_hold_tags(p, bytes)) {
    drop(address(p), address(p) + bytes, true);
  }
}

void LayoutMap::mark(void* p, at::IntArrayRef dims, size_t element_bytes) {
  mark(p, Planes{dims[0], dims[1], dims[2] * dims[3]}, element_bytes);
}

void LayoutMap::mark(void* p, const Planes& planes, size_t element_bytes) {
  const Tag tag{planes.samples, planes.channels, planes.area, element_bytes};
  if (tag.bytes() == 0 || planes.channels == 1 || planes.area == 1) {
    return;
  }
  const std::lock_guard lock(mutex_);
  insert(address(p), tag);
}

}  // namespace acl_sim
