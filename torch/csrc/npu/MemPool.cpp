// Bindings of memory pools and pluggable allocators, under the names that torch._C has for CUDA's.

#include <c10/npu/MemPool.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/npu/NPUPluggableAllocator.h>

#include <thread>

namespace torch::npu {
namespace {

namespace py = pybind11;
namespace allocator = c10::npu::NPUCachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;
using c10::npu::MemPool;

DeviceIndex index(int64_t i) { return static_cast<DeviceIndex>(i); }

void begin_on_this_thread(int64_t device, MempoolId_t pool) {
  allocator::get()->beginAllocateToPool(index(device), pool, [thread = std::this_thread::get_id()](aclrtStream) {
    return std::this_thread::get_id() == thread;
  });
}

std::shared_ptr<allocator::NPUAllocator> custom_allocator(uintptr_t alloc, uintptr_t free) {
  using Alloc = void* (*)(size_t, int, aclrtStream);
  using Free = void (*)(void*, size_t, int, aclrtStream);
  TORCH_CHECK_VALUE(alloc != 0 && free != 0,
                    "a pluggable allocator needs a function that allocates and one that frees");
  return NPUPluggableAllocator::createCustomAllocator(reinterpret_cast<Alloc>(alloc), reinterpret_cast<Free>(free));
}

}  // namespace

void bind_mem_pool(py::module_& m) {
  py::class_<allocator::NPUAllocator, std::shared_ptr<allocator::NPUAllocator>>(m, "_npu_NPUAllocator");
  py::class_<MemPool, std::shared_ptr<MemPool>>(m, "_NPUMemPool")
      .def(py::init(torch::wrap_pybind_function(
               [](std::shared_ptr<allocator::NPUAllocator> from, bool is_user_created, bool use_on_oom, bool no_split) {
                 return std::shared_ptr<MemPool>(new MemPool(std::move(from), is_user_created, use_on_oom, no_split),
                                                 [](MemPool* pool) {
                                                   const py::gil_scoped_release release;
                                                   delete pool;
                                                 });
               })),
           py::arg("allocator") = nullptr, py::arg("is_user_created") = true, py::arg("use_on_oom") = false,
           py::arg("no_split") = false)
      .def_property_readonly("id", &MemPool::id)
      .def_property_readonly("device", [](const MemPool& pool) { return static_cast<int>(pool.device()); })
      .def_property_readonly("allocator", &MemPool::allocator)
      .def("use_count", torch::wrap_pybind_function([](const MemPool& pool) { return pool.use_count(); }));

  m.def("_npu_beginAllocateToPool", torch::wrap_pybind_function([](int64_t device, MempoolId_t pool) {
          allocator::get()->beginAllocateToPool(index(device), pool, [](aclrtStream) { return true; });
        }));
  m.def("_npu_beginAllocateCurrentThreadToPool", torch::wrap_pybind_function(&begin_on_this_thread));
  m.def("_npu_endAllocateToPool", torch::wrap_pybind_function([](int64_t device, MempoolId_t pool) {
          allocator::get()->endAllocateToPool(index(device), pool);
        }));
  m.def("_npu_releasePool", torch::wrap_pybind_function([](int64_t device, MempoolId_t pool) {
          allocator::get()->releasePool(index(device), pool);
        }));
  m.def("_npu_customAllocator", torch::wrap_pybind_function(&custom_allocator));
  m.def("_npu_changeCurrentAllocator", torch::wrap_pybind_function(&NPUPluggableAllocator::changeCurrentAllocator));
  m.def("_npu_getAllocator", torch::wrap_pybind_function(&NPUPluggableAllocator::getCurrentAllocator));
  m.def("_npu_getAllocatorBackend", torch::wrap_pybind_function([]() { return allocator::get()->name(); }));
  m.def("_npu_setAllocatorSettings",
        torch::wrap_pybind_function([](const std::string& settings) { allocator::setAllocatorSettings(settings); }));
}

}  // namespace torch::npu
