// Reserving addresses, and mapping pages of them. Note [Expandable segments] in the header says what for.

#include <c10/npu/impl/ExpandableSegment.h>

#include <acl_loader.h>
#include <c10/npu/NPUException.h>

#include <algorithm>

namespace c10::npu::NPUCachingAllocator {

namespace {

bool has_functions() {
  static const bool all = std::ranges::all_of(
      std::initializer_list<const char*>{"aclrtReserveMemAddress", "aclrtReleaseMemAddress", "aclrtMallocPhysical",
                                         "aclrtFreePhysical", "aclrtMapMem", "aclrtUnmapMem"},
      [](const char* name) { return acl::has_function(name); });
  if (!all) {
    TORCH_WARN_ONCE("expandable_segments:True has no effect: this CANN cannot map memory into reserved addresses");
  }
  return all;
}

}  // namespace

std::unique_ptr<ExpandableSegment> ExpandableSegment::make(const NPUStream& stream, size_t bytes, size_t page) {
  if (!has_functions()) {
    return nullptr;
  }
  const size_t pages = std::max<size_t>(bytes / page, 1);
  void* base = nullptr;
  if (acl::aclrtReserveMemAddress(&base, pages * page, 0, nullptr, 1) != ACL_SUCCESS) {
    take_recent_error();
    return nullptr;
  }
  return std::unique_ptr<ExpandableSegment>(new ExpandableSegment(stream, static_cast<char*>(base), pages, page));
}

ExpandableSegment::~ExpandableSegment() { NPU_CHECK_WARN(acl::aclrtReleaseMemAddress(base_)); }

aclError ExpandableSegment::map(size_t first, size_t last) {
  aclrtPhysicalMemProp property{};
  property.handleType = ACL_MEM_HANDLE_TYPE_NONE;
  property.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED;
  property.memAttr = ACL_HBM_MEM_HUGE;
  property.location.id = static_cast<uint32_t>(stream_.device_index());
  property.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  for (size_t page = first; page < last; ++page) {
    aclrtDrvMemHandle handle = nullptr;
    aclError code = acl::aclrtMallocPhysical(&handle, page_, &property, 0);
    if (code == ACL_SUCCESS) {
      code = acl::aclrtMapMem(address(page), page_, 0, handle, 0);
      if (code != ACL_SUCCESS) {
        acl::aclrtFreePhysical(handle);
      }
    }
    if (code != ACL_SUCCESS) {
      unmap(first, page);
      return code;
    }
    handles_[page] = handle;
    ++mapped_;
  }
  return ACL_SUCCESS;
}

void ExpandableSegment::unmap(size_t first, size_t last) {
  for (size_t page = first; page < last; ++page) {
    NPU_CHECK(acl::aclrtUnmapMem(address(page)));
    NPU_CHECK(acl::aclrtFreePhysical(handles_[page]));
    handles_[page] = nullptr;
    --mapped_;
  }
}

}  // namespace c10::npu::NPUCachingAllocator
