// See MemPool.h.

#include <c10/npu/MemPool.h>

#include <c10/npu/NPUFunctions.h>

#include <atomic>

namespace c10::npu {

MempoolId_t MemPool::graph_pool_handle(bool is_user_created) {
  static std::atomic<CaptureId_t> numbers{0};
  const CaptureId_t number = ++numbers;
  return is_user_created ? MempoolId_t{0, number} : MempoolId_t{number, 0};
}

MemPool::MemPool(std::shared_ptr<NPUCachingAllocator::NPUAllocator> allocator, bool is_user_created, bool use_on_oom,
                 bool no_split)
    : allocator_(std::move(allocator)), id_(graph_pool_handle(is_user_created)), device_(current_device()) {
  auto* const books = NPUCachingAllocator::get();
  books->createOrIncrefPool(device_, id_, allocator_);
  if (use_on_oom) {
    books->setUseOnOOM(device_, id_, true);
  }
  if (no_split) {
    books->setNoSplit(device_, id_);
  }
}

MemPool::~MemPool() {
  if (is_shut_down() || is_in_bad_fork()) {
    return;
  }
  try {
    auto* const books = NPUCachingAllocator::get();
    books->setUseOnOOM(device_, id_, false);
    // First, since the last release may already end the pool.
    books->emptyCache(id_);
    books->releasePool(device_, id_);
  } catch (const std::exception& error) {
    TORCH_WARN("A memory pool could not be released: ", error.what());
  }
}

int MemPool::use_count() const { return NPUCachingAllocator::get()->getPoolUseCount(device_, id_); }

}  // namespace c10::npu
