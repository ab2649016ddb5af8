#pragma once
// How the device stores images. Hosts see every tensor contiguous (NCHW); the device may keep a 4-D tensor
// channels-last (NHWC) in the same memory, and this map remembers where.
//
// Note [Stored layouts]: a tag says "these samples (slices along the first dimension) of C x H x W elements lie
// channels-last". Memory without a tag is plain. Whoever touches device memory keeps to three rules:
//  - a read of memory that holds tagged samples either takes them as channels-last (channels_last()) or reads through
//    read(), which puts the elements into the host's order in a copy; reading never changes memory or tags;
//  - a write that replaces a whole range calls forget() first and mark() afterwards if it wrote channels-last;
//  - a write to unknown parts of a range calls make_plain() first.
// Samples are the unit: forget() and make_plain() of a part of a tag split it, and reorder at most the samples at the
// two borders. So a tag may outlive its tensor at little cost: the memory's next owner writes before it reads.
//
// Note [Layouts and streams]: two streams may work on parts of one tensor, and so of one sample. Reordering a sample
// because of one part moves the other's elements. Whoever relies on a tag, or reads what one describes, therefore holds
// use() meanwhile; whoever writes a part calls free_borders() before, which waits for them. Under use() nothing moves:
// forget() then finds whole samples only.
// A filter that the host describes as HWCN is one sample: [H * W * C] planes of O elements, which lie as O rows.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace [[gnu::visibility("hidden")]] acl_sim {

// The order in which the host describes the elements of an operand: that of its dims; an image [N, C, H, W] as
// [N, H, W, C]; or a filter [O, C, H, W] as [H, W, C, O].
enum class HostOrder : uint8_t { kAsDims, kRows, kFilterColumns };

// A tensor as [samples, channels, area], of which each sample may lie as [area, channels].
struct Planes {
  int64_t samples, channels, area;
};

class LayoutMap {
 public:
  // False if [p, p + bytes) certainly holds nothing but plain memory. Lock-free; may be true without reason.
  bool may_hold_tags(const void* p, size_t bytes) const;

  // Whether all samples of a 4-D tensor at p are stored channels-last.
  bool channels_last(const void* p, at::IntArrayRef dims, size_t element_bytes) const;
  // The same for memory of other dims.
  bool turned(const void* p, const Planes& planes, size_t element_bytes) const;
  // Whether any part of the range is tagged.
  bool any(const void* p, size_t bytes) const;

  // Copies a range in the host's element order to `to` (host or scratch memory).
  void read(const void* p, size_t bytes, void* to) const;
  // Copies a range as it lies to `to`, plain memory that `map` describes, and its tags with it. False, and nothing is
  // done, if a sample reaches out of the range. Under use().
  bool copy(const void* p, size_t bytes, void* to, LayoutMap& map) const;
  // A number for the order in which the elements of a range lie, the same for the same order: 0 for the host's, kMixed
  // if a sample reaches out of it.
  static constexpr uint64_t kMixed = UINT64_MAX;
  uint64_t order(const void* p, size_t bytes) const;

  // See Note [Layouts and streams]. Not recursive.
  std::shared_lock<std::shared_mutex> use() const { return std::shared_lock(content_); }
  // Makes the samples plain that reach beyond the range. Not under use().
  void free_borders(void* p, size_t bytes);

  // The range is about to be overwritten as a whole.
  void forget(void* p, size_t bytes);
  // The 4-D tensor at p has been written channels-last.
  void mark(void* p, at::IntArrayRef dims, size_t element_bytes);
  void mark(void* p, const Planes& planes, size_t element_bytes);
  // Reorders what is tagged in the range, in place.
  void make_plain(void* p, size_t bytes);

  // Both layouts of such dims are the same bytes.
  static bool layout_free(at::IntArrayRef dims) { return dims[1] == 1 || dims[2] * dims[3] == 1; }

 private:
  struct Tag {
    int64_t samples;
    int64_t channels, area;  // C and H * W
    size_t element_bytes;
    size_t sample_bytes() const { return static_cast<size_t>(channels * area) * element_bytes; }
    size_t bytes() const { return static_cast<size_t>(samples) * sample_bytes(); }
  };
  using Tags = std::map<uintptr_t, Tag>;  // by address; tags do not overlap
  // By distance from the range's beginning, cut to the range, those of the same samples as one.
  using Inside = std::vector<std::pair<uintptr_t, Tag>>;

  static constexpr int kPageBits = 21;
  static constexpr size_t kPages = size_t{1} << 14;

  std::optional<Inside> inside(uintptr_t begin, uintptr_t end) const;  // nothing if a sample reaches out
  Tags::const_iterator first_overlap(uintptr_t begin, uintptr_t end) const;
  void insert(uintptr_t base, const Tag& tag);
  void erase(Tags::iterator it);
  void drop(uintptr_t begin, uintptr_t end, bool keep_content);
  void count_pages(uintptr_t base, size_t bytes, uint32_t delta);

  // Whether the sample at an address is tagged and reaches out of [begin, end).
  bool reaches_out(uintptr_t at, uintptr_t begin, uintptr_t end) const;

  mutable std::shared_mutex content_;  // taken before mutex_
  mutable std::mutex mutex_;
  Tags tags_;
  std::array<std::atomic<uint32_t>, kPages> pages_{};  // tags that touch a page, pages hashed by number
};

// Strides of contiguous and of channels-last memory.
std::array<int64_t, 4> channels_last_strides(at::IntArrayRef dims);

// Reorders n samples: [channels, area] planes from [area, channels] rows, and back.
void rows_to_planes(const void* rows, void* planes, int64_t n, int64_t channels, int64_t area, size_t element_bytes);
void planes_to_rows(const void* planes, void* rows, int64_t n, int64_t channels, int64_t area, size_t element_bytes);

}  // namespace acl_sim
