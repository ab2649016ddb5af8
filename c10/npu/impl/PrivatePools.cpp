// The allocator's pools beside the public one. Note [Private pools] in Blocks.h explains them.

#include <c10/npu/impl/DeviceCachingAllocator.h>

#include <algorithm>

namespace c10::npu::NPUCachingAllocator {

PrivatePool& DeviceCachingAllocator::private_pool(MempoolId_t id) {
  const auto found = private_pools_.find(id);
  TORCH_CHECK(found != private_pools_.end(), "npu:", static_cast<int>(device_), " has no memory pool (", id.first, ", ",
              id.second, "); it was never used there, or has been released");
  return *found->second;
}

void DeviceCachingAllocator::use_pool(MempoolId_t id, std::shared_ptr<NPUAllocator> source) {
  TORCH_CHECK_VALUE(id != kPublicPool, "(0, 0) is the public pool's id, not that of a memory pool");
  const std::lock_guard lock(mutex_);
  auto& pool = private_pools_[id];
  if (pool == nullptr) {
    pool = std::make_unique<PrivatePool>(id, std::move(source));
  }
  ++pool->users;
}

void DeviceCachingAllocator::begin_allocate_to_pool(MempoolId_t id, StreamFilter filter) {
  use_pool(id, nullptr);
  const std::lock_guard lock(mutex_);
  routes_.emplace_back(&private_pool(id), std::move(filter));
}

void DeviceCachingAllocator::end_allocate_to_pool(MempoolId_t id) {
  const std::lock_guard lock(mutex_);
  PrivatePool& pool = private_pool(id);
  // Several threads may allocate to one pool: a thread ends its own turn.
  const auto ends = [&](bool own) {
    const auto found = std::find_if(routes_.rbegin(), routes_.rend(), [&](const auto& route) {
      return route.first == &pool && (!own || route.second(nullptr));
    });
    if (found == routes_.rend()) {
      return false;
    }
    routes_.erase(std::next(found).base());
    return true;
  };
  TORCH_CHECK(ends(true) || ends(false), "nothing allocates to memory pool (", id.first, ", ", id.second, ")");
}

void DeviceCachingAllocator::release_pool(MempoolId_t id) {
  const std::lock_guard lock(mutex_);
  PrivatePool& pool = private_pool(id);
  TORCH_CHECK(pool.users > 0, "memory pool (", id.first, ", ", id.second, ") has been released already");
  --pool.users;
  drop_empty_pools();
}

int DeviceCachingAllocator::pool_users(MempoolId_t id) {
  const std::lock_guard lock(mutex_);
  return private_pool(id).users;
}

void DeviceCachingAllocator::set_use_on_oom(MempoolId_t id, bool use) {
  const std::lock_guard lock(mutex_);
  private_pool(id).use_on_oom = use;
}

void DeviceCachingAllocator::set_no_split(MempoolId_t id) {
  const std::lock_guard lock(mutex_);
  private_pool(id).no_split = true;
}

PrivatePool* DeviceCachingAllocator::routed_pool(const NPUStream& stream) {
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
    if (route->second(stream.stream())) {
      return route->first;
    }
  }
  return nullptr;
}

// The last resort of a request that found no memory anywhere else.
Block* DeviceCachingAllocator::take_from_spare_pools(size_t size, const NPUStream& stream) {
  for (const auto& [id, pool] : private_pools_) {
    if (!pool->use_on_oom) {
      continue;
    }
    BlockPool& blocks = size <= CachingAllocator::kSmallSize ? pool->small : pool->large;
    if (Block* block = take_free_block(blocks, size, stream)) {
      return block;
    }
  }
  return nullptr;
}

void DeviceCachingAllocator::drop_empty_pools() {
  std::erase_if(private_pools_, [this](const auto& entry) {
    const PrivatePool& pool = *entry.second;
    if (pool.users > 0 || pool.reserved > 0) {
      return false;
    }
    expandable_.erase(&pool.small);
    expandable_.erase(&pool.large);
    return true;
  });
}

}  // namespace c10::npu::NPUCachingAllocator
