#pragma once
// Addresses that are given memory page by page: what the allocator grows and shrinks in place of asking for segments.

#include <acl/acl.h>
#include <c10/npu/NPUStream.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace c10::npu::NPUCachingAllocator {

// Note [Expandable segments]
// With expandable_segments:True the blocks of a stream and a block pool lie in one range of addresses, reserved once,
// as large as the device. Memory is mapped there in pages of a fixed size when no free block is large enough, next to a
// free block if there is one, so that requests of growing sizes do not leave segments behind that are too small for the
// next. Giving back unmaps whole pages, in the middle too. A run of mapped pages is what a segment is otherwise: one
// list of blocks, entered in `segments_` with its first block. Where the addresses or the functions for it are missing,
// ordinary segments serve.
class ExpandableSegment {
 public:
  // Null where no addresses are left, or ACL lacks the functions. The device must be active.
  static std::unique_ptr<ExpandableSegment> make(const NPUStream& stream, size_t bytes, size_t page);
  // Nothing may be mapped any more.
  ~ExpandableSegment();
  ExpandableSegment(const ExpandableSegment&) = delete;
  ExpandableSegment& operator=(const ExpandableSegment&) = delete;

  const NPUStream& stream() const { return stream_; }
  size_t page() const { return page_; }
  size_t pages() const { return handles_.size(); }
  bool is_mapped(size_t page) const { return handles_[page] != nullptr; }
  bool is_empty() const { return mapped_ == 0; }
  char* address(size_t page) const { return base_ + page * page_; }
  size_t page_of(const void* address) const { return (static_cast<const char*>(address) - base_) / page_; }

  // Gives memory to pages [first, last); if the device refuses one, to none of them.
  aclError map(size_t first, size_t last);
  // The stream must be done with them.
  void unmap(size_t first, size_t last);

 private:
  ExpandableSegment(const NPUStream& stream, char* base, size_t pages, size_t page)
      : stream_(stream), base_(base), page_(page), handles_(pages) {}

  NPUStream stream_;
  char* base_;
  size_t page_;
  size_t mapped_ = 0;
  std::vector<aclrtDrvMemHandle> handles_;  // of each page; null: not mapped
};

}  // namespace c10::npu::NPUCachingAllocator
