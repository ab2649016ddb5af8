// See NPUGraphTasks.h.

#include <ATen/npu/NPUGraphTasks.h>

#include <acl_loader.h>
#include <c10/npu/MemPool.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUGraphsC10Utils.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUTaskQueue.h>

#include <map>
#include <mutex>
#include <vector>

namespace at::npu {

namespace acl = c10::npu::acl;
namespace allocator = c10::npu::NPUCachingAllocator;

namespace {

struct Group {
  aclmdlRI graph;
  DeviceIndex device;
  MempoolId_t pool;
  int updates = 0;  // each has to be released once
};

std::mutex groups_mutex;

std::map<void*, Group>& groups() {
  static auto* value = new std::map<void*, Group>;
  return *value;
}

// Of the update under way on a stream.
std::map<aclrtStream, MempoolId_t>& updates() {
  static auto* value = new std::map<aclrtStream, MempoolId_t>;
  return *value;
}

void require_groups(const char* what) {
  static const bool there =
      acl::has_function("aclmdlRICaptureTaskGrpBegin") && acl::has_function("aclmdlRICaptureTaskGrpEnd") &&
      acl::has_function("aclmdlRICaptureTaskUpdateBegin") && acl::has_function("aclmdlRICaptureTaskUpdateEnd");
  TORCH_CHECK(
      there, what,
      ": this CANN cannot change captured tasks: it lacks aclmdlRICaptureTaskGrpBegin. Capture a graph for each "
      "value of the arguments.");
}

}  // namespace

void graph_task_group_begin(const c10::npu::NPUStream& stream) {
  require_groups("graph_task_group_begin");
  const c10::npu::NPUGuard guard(stream.device_index());
  c10::npu::drain_task_queue(stream.device_index());
  NPU_CHECK(acl::aclmdlRICaptureTaskGrpBegin(stream.stream()));
}

void* graph_task_group_end(const c10::npu::NPUStream& stream) {
  require_groups("graph_task_group_end");
  const c10::npu::NPUGuard guard(stream.device_index());
  c10::npu::drain_task_queue(stream.device_index());
  aclmdlRI graph = nullptr;
  c10::npu::capture_status(stream, &graph);
  void* handle = nullptr;
  NPU_CHECK(acl::aclmdlRICaptureTaskGrpEnd(stream.stream(), &handle));
  const std::lock_guard<std::mutex> lock(groups_mutex);
  groups()[handle] = {graph, stream.device_index(), c10::npu::MemPool::graph_pool_handle(/*is_user_created=*/false)};
  return handle;
}

void graph_task_update_begin(const c10::npu::NPUStream& stream, void* handle) {
  require_groups("graph_task_update_begin");
  const c10::npu::NPUGuard guard(stream.device_index());
  // What was launched before is no part of the update.
  c10::npu::drain_task_queue(stream.device_index());
  const std::lock_guard<std::mutex> lock(groups_mutex);
  const auto found = groups().find(handle);
  TORCH_CHECK(
      found != groups().end(),
      "graph_task_update_begin: the handle is not one that graph_task_group_end returned, or its graph is gone");
  Group& group = found->second;
  NPU_CHECK(acl::aclmdlRICaptureTaskUpdateBegin(stream.stream(), handle));
  c10::npu::detail::captures_under_way.fetch_add(1);
  const aclrtStream updated = stream.stream();
  allocator::get()->beginAllocateToPool(group.device, group.pool,
                                        [updated](aclrtStream asked) { return asked == updated; });
  ++group.updates;
  updates()[updated] = group.pool;
}

void graph_task_update_end(const c10::npu::NPUStream& stream) {
  const c10::npu::NPUGuard guard(stream.device_index());
  MempoolId_t pool;
  {
    const std::lock_guard<std::mutex> lock(groups_mutex);
    const auto found = updates().find(stream.stream());
    TORCH_CHECK(found != updates().end(), "graph_task_update_end: no update has begun on this stream");
    pool = found->second;
    updates().erase(found);
  }
  c10::npu::drain_task_queue(stream.device_index(), /*raise=*/false);
  const aclError code = acl::aclmdlRICaptureTaskUpdateEnd(stream.stream());
  c10::npu::detail::captures_under_way.fetch_sub(1);
  allocator::get()->endAllocateToPool(stream.device_index(), pool);
  NPU_CHECK(code);
  c10::npu::drain_task_queue(stream.device_index());
}

void forget_task_groups(aclmdlRI graph) {
  std::vector<Group> gone;
  {
    const std::lock_guard<std::mutex> lock(groups_mutex);
    std::erase_if(groups(), [&](const auto& entry) {
      if (entry.second.graph != graph) return false;
      gone.push_back(entry.second);
      return true;
    });
  }
  for (const Group& group : gone) {
    for (int i = 0; i < group.updates; ++i) allocator::get()->releasePool(group.device, group.pool);
  }
}

}  // namespace at::npu
