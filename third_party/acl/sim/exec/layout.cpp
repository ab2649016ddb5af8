// See layout.h.

#include "layout.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace acl_sim {
namespace {

constexpr int64_t kTile = 16;

// to[c][r] = from[r][c], tile by tile so that both sides stay in the first-level cache.
template <class T>
void transpose(const T* __restrict from, T* __restrict to, int64_t rows, int64_t columns) {
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    const int64_t r1 = std::min(rows, r0 + kTile);
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      const int64_t c1 = std::min(columns, c0 + kTile);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) {
          to[c * rows + r] = from[r * columns + c];
        }
      }
    }
  }
}

void transpose_samples(const void* from, void* to, int64_t n, int64_t rows, int64_t columns, size_t element_bytes) {
  const int64_t elements = rows * columns;
  const auto run = [&]<class T>(T) {
    at::parallel_for(0, n, std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(elements, 1)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         transpose(static_cast<const T*>(from) + i * elements, static_cast<T*>(to) + i * elements, rows,
                                   columns);
                       }
                     });
  };
  switch (element_bytes) {
    case 1:
      run(uint8_t{});
      break;
    case 2:
      run(uint16_t{});
      break;
    case 4:
      run(uint32_t{});
      break;
    case 8:
      run(uint64_t{});
      break;
    default:
      run(std::array<uint64_t, 2>{});
      break;
  }
}

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

std::array<int64_t, 4> channels_last_strides(at::IntArrayRef dims) {
  return {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
}

void rows_to_planes(const void* rows, void* planes, int64_t n, int64_t channels, int64_t area, size_t element_bytes) {
  transpose_samples(rows, planes, n, area, channels, element_bytes);
}

void planes_to_rows(const void* planes, void* rows, int64_t n, int64_t channels, int64_t area, size_t element_bytes) {
  transpose_samples(planes, rows, n, channels, area, element_bytes);
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
  if (dims.size() != 4) {
    return false;
  }
  const Tag wanted{dims[0], dims[1], dims[2] * dims[3], element_bytes};
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

// Takes the tags out of a range. Samples whose content must survive are reordered: all of them with keep_content, else
// those that reach beyond the range.
void LayoutMap::drop(uintptr_t begin, uintptr_t end, bool keep_content) {
  const std::lock_guard lock(mutex_);
  std::vector<char> copy;
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
        copy.resize(size);
        std::memcpy(copy.data(), reinterpret_cast<const void*>(sample), size);
        rows_to_planes(copy.data(), reinterpret_cast<void*>(sample), 1, tag.channels, tag.area, tag.element_bytes);
      }
    }
    erase(tags_.find(base));
    insert(base, {from, tag.channels, tag.area, tag.element_bytes});
    insert(base + static_cast<size_t>(to) * size, {tag.samples - to, tag.channels, tag.area, tag.element_bytes});
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
  const Tag tag{dims[0], dims[1], dims[2] * dims[3], element_bytes};
  if (tag.bytes() == 0 || layout_free(dims)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  insert(address(p), tag);
}

}  // namespace acl_sim
