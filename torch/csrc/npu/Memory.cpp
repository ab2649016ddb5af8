// Bindings of the caching allocator of device memory and of the one of pinned host memory: counters as dictionaries
// with the keys of torch.cuda, bounds.

#include <ATen/npu/CachingHostAllocator.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/npu/Bindings.h>

namespace torch::npu {
namespace {

namespace py = pybind11;
namespace allocator = c10::npu::NPUCachingAllocator;
using c10::DeviceIndex;

py::dict stat_dict(const c10::CachingAllocator::Stat& stat) {
  py::dict d;
  d["current"] = stat.current;
  d["peak"] = stat.peak;
  d["allocated"] = stat.allocated;
  d["freed"] = stat.freed;
  return d;
}

py::dict stat_dict(const c10::CachingAllocator::StatArray& stats) {
  using c10::CachingAllocator::StatType;
  py::dict d;
  d["all"] = stat_dict(stats[static_cast<size_t>(StatType::AGGREGATE)]);
  d["small_pool"] = stat_dict(stats[static_cast<size_t>(StatType::SMALL_POOL)]);
  d["large_pool"] = stat_dict(stats[static_cast<size_t>(StatType::LARGE_POOL)]);
  return d;
}

py::dict stat_dict(const c10::CachingAllocator::DurationStat& stat) {
  py::dict d;
  d["total"] = stat.total;
  d["max"] = stat.max;
  d["min"] = stat.min;
  d["count"] = stat.count;
  d["avg"] = stat.count == 0 ? 0 : stat.total / stat.count;
  return d;
}

py::dict memory_stats(int64_t device) {
  const auto stats = allocator::getDeviceStats(static_cast<DeviceIndex>(device));
  py::dict d;
  d["num_alloc_retries"] = stats.num_alloc_retries;
  d["num_ooms"] = stats.num_ooms;
  d["max_split_size"] = stats.max_split_size;
  d["num_sync_all_streams"] = stats.num_sync_all_streams;
  d["num_device_alloc"] = stats.num_device_alloc;
  d["num_device_free"] = stats.num_device_free;
  d["allocation"] = stat_dict(stats.allocation);
  d["segment"] = stat_dict(stats.segment);
  d["active"] = stat_dict(stats.active);
  d["inactive_split"] = stat_dict(stats.inactive_split);
  d["allocated_bytes"] = stat_dict(stats.allocated_bytes);
  d["reserved_bytes"] = stat_dict(stats.reserved_bytes);
  d["active_bytes"] = stat_dict(stats.active_bytes);
  d["inactive_split_bytes"] = stat_dict(stats.inactive_split_bytes);
  d["requested_bytes"] = stat_dict(stats.requested_bytes);
  d["oversize_allocations"] = stat_dict(stats.oversize_allocations);
  d["oversize_segments"] = stat_dict(stats.oversize_segments);
  return d;
}

py::dict host_memory_stats() {
  const auto stats = at::npu::getCachingHostAllocator()->get_stats();
  py::dict d;
  d["num_host_alloc"] = stats.num_host_alloc;
  d["num_host_free"] = stats.num_host_free;
  d["allocations"] = stat_dict(stats.allocations);
  d["allocated_bytes"] = stat_dict(stats.allocated_bytes);
  d["active_requests"] = stat_dict(stats.active_requests);
  d["active_bytes"] = stat_dict(stats.active_bytes);
  d["host_alloc_time"] = stat_dict(stats.host_alloc_time);
  d["host_free_time"] = stat_dict(stats.host_free_time);
  return d;
}

uintptr_t raw_alloc(size_t size, uintptr_t stream) {
  const auto owner = c10::npu::getStreamFromExternal(reinterpret_cast<aclrtStream>(stream), c10::npu::current_device());
  return reinterpret_cast<uintptr_t>(allocator::raw_alloc_with_stream(size, owner));
}

}  // namespace

void bind_memory(py::module_& m) {
  const auto index = [](int64_t i) { return static_cast<DeviceIndex>(i); };
  m.def("_npu_memoryStats", torch::wrap_pybind_function(&memory_stats));
  m.def("_npu_resetAccumulatedMemoryStats",
        torch::wrap_pybind_function([index](int64_t i) { allocator::resetAccumulatedStats(index(i)); }));
  m.def("_npu_resetPeakMemoryStats",
        torch::wrap_pybind_function([index](int64_t i) { allocator::resetPeakStats(index(i)); }));
  m.def("_npu_emptyCache", torch::wrap_pybind_function_no_gil([]() { allocator::emptyCache(); }));
  m.def("_npu_emptyPool",
        torch::wrap_pybind_function_no_gil([](c10::MempoolId_t pool) { allocator::emptyCache(pool); }));
  m.def("_npu_memGetInfo", torch::wrap_pybind_function([index](int64_t i) {
          const auto [free, total] = allocator::getMemoryInfo(index(i));
          return py::make_tuple(free, total);
        }));
  m.def("_npu_setMemoryFraction", torch::wrap_pybind_function([index](double fraction, int64_t i) {
          allocator::setMemoryFraction(fraction, index(i));
        }));
  m.def("_npu_getMemoryFraction",
        torch::wrap_pybind_function([index](int64_t i) { return allocator::getMemoryFraction(index(i)); }));
  m.def("_npu_cachingAllocatorRawAlloc", torch::wrap_pybind_function_no_gil(&raw_alloc));
  m.def("_npu_cachingAllocatorRawDelete", torch::wrap_pybind_function_no_gil([](uintptr_t pointer) {
          allocator::raw_delete(reinterpret_cast<void*>(pointer));
        }));
  m.def("_npu_eraseStream",
        torch::wrap_pybind_function([](uintptr_t pointer, int64_t stream, int64_t device, int64_t type) {
          const auto index = static_cast<DeviceIndex>(device);
          const auto owner = c10::Stream::unpack3(stream, index, static_cast<c10::DeviceType>(type));
          allocator::eraseStream(reinterpret_cast<void*>(pointer), c10::npu::NPUStream(owner));
        }));

  m.def("_npu_hostMemoryStats", torch::wrap_pybind_function(&host_memory_stats));
  m.def("_npu_resetAccumulatedHostMemoryStats",
        torch::wrap_pybind_function([]() { at::npu::getCachingHostAllocator()->reset_accumulated_stats(); }));
  m.def("_npu_resetPeakHostMemoryStats",
        torch::wrap_pybind_function([]() { at::npu::getCachingHostAllocator()->reset_peak_stats(); }));
  m.def("_npu_hostEmptyCache",
        torch::wrap_pybind_function_no_gil([]() { at::npu::getCachingHostAllocator()->empty_cache(); }));
}

}  // namespace torch::npu
