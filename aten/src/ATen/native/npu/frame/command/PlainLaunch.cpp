// Launches of operators whose descriptors depend on name, dtypes and one shape.

#include <ATen/native/npu/frame/command/PlainLaunch.h>

#include <ATen/native/npu/frame/command/CompileMode.h>
#include <ATen/native/npu/frame/command/DescriptorCache.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/command/OverflowCheck.h>
#include <acl_loader.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUTaskQueue.h>

namespace at::native::npu {

namespace acl = c10::npu::acl;

namespace {

constexpr size_t kMostOperands = 4;
constexpr size_t kMostDims = 127;  // what a key has room for

// The data buffers that a thread hands to ACL, which reads them during the call.
using Buffers = std::array<aclDataBuffer*, kMostOperands>;
thread_local Buffers* own_buffers __attribute__((tls_model("initial-exec"))) = nullptr;

// As in DescriptorCache.cpp: given back when the thread ends, but not at the end of the process.
struct BuffersEnd {
  ~BuffersEnd() {
    if (!c10::npu::is_shut_down() && !c10::npu::is_in_bad_fork()) {
      for (auto* buffer : *own_buffers) acl::aclDestroyDataBuffer(buffer);
      delete own_buffers;
    }
    own_buffers = nullptr;
  }
};

Buffers& buffers() {
  if (C10_UNLIKELY(own_buffers == nullptr)) {
    static thread_local BuffersEnd end;
    static_cast<void>(end);
    own_buffers = new Buffers();
    for (auto& buffer : *own_buffers) buffer = acl::aclCreateDataBuffer(nullptr, 0);
  }
  return *own_buffers;
}

[[gnu::flatten]] inline void* address(const TensorImpl& t, size_t item) {
  return static_cast<char*>(t.unsafe_storage().unsafeGetStorageImpl()->mutable_data()) +
         static_cast<size_t>(t.storage_offset()) * item;
}

// Of a tensor that is only read: a lazily cloned storage stays shared.
[[gnu::flatten]] inline void* read_address(const TensorImpl& t, size_t item) {
  const void* data = t.unsafe_storage().unsafeGetStorageImpl()->data();
  return static_cast<char*>(const_cast<void*>(data)) + static_cast<size_t>(t.storage_offset()) * item;
}

// The task: run at the call it borrows the descriptors; moved into the queue it keeps them alive.
struct Task {
  Task() = default;
  Task(Task&& other) noexcept
      : ir(other.ir),
        prepared(other.prepared),
        kept(c10::intrusive_ptr<Prepared>::reclaim_copy(other.prepared)),
        data(other.data),
        count(other.count),
        in_bytes(other.in_bytes),
        out_bytes(other.out_bytes) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  Task& operator=(Task&&) = delete;
  ~Task() = default;

  aclError operator()(aclrtStream stream) const {
    auto& own = buffers();
    for (size_t i = 0; i < count; ++i) acl::aclUpdateDataBuffer(own[i], data[i], in_bytes);
    acl::aclUpdateDataBuffer(own[count], data[count], out_bytes);
    const auto launch = [&] {
      return acl::aclopCompileAndExecute(ir, static_cast<int>(count), prepared->inputs(), own.data(), 1,
                                         prepared->outputs(), &own[count], prepared->attributes(), ACL_ENGINE_SYS,
                                         ACL_COMPILE_SYS, nullptr, stream);
    };
    return in_compile_mode(ir, [&] { return in_overflow_check(ir, stream, launch); });
  }

  const char* ir = nullptr;
  Prepared* prepared = nullptr;
  c10::intrusive_ptr<Prepared> kept;
  std::array<void*, kMostOperands> data{};
  size_t count = 0;
  size_t in_bytes = 0;
  size_t out_bytes = 0;
};

}  // namespace

[[gnu::flatten]] void launch_plain(const char* ir, const TensorImpl& out, const TensorImpl* const* in, size_t count) {
  const IntArrayRef sizes = out.sizes();
  const size_t rank = sizes.size();
  TORCH_CHECK(rank <= kMostDims, ir, " takes tensors of up to ", kMostDims, " dimensions, not ", rank);
  // The key of Note [Command keys]: all operands have the dims of the first.
  std::array<int64_t, 4 + kMostDims> key;
  const aclDataType dtype = acl_dtype(typeMetaToScalarType(in[0]->dtype()));
  const uint32_t first = operand_word(dtype, rank, false);
  const uint32_t further = operand_word(dtype, rank, true);
  const uint32_t last = operand_word(acl_dtype(typeMetaToScalarType(out.dtype())), rank, true);
  key[0] = reinterpret_cast<int64_t>(ir);
  key[1] = count_word(count, 1);
  key[2] = pair_word(first, count == 1 ? last : further);
  size_t words = 3;
  if (count > 1) key[words++] = count == 2 ? pair_word(last, 0) : pair_word(further, last);
  for (const int64_t size : sizes) key[words++] = size;

  Task task;
  task.ir = ir;
  task.prepared = &DescriptorCache::local().get({key.data(), words});
  task.count = count;
  const auto elements = static_cast<size_t>(out.numel());
  const size_t in_item = in[0]->itemsize(), out_item = out.itemsize();
  task.in_bytes = elements * in_item;
  task.out_bytes = elements * out_item;
  for (size_t i = 0; i < count; ++i) task.data[i] = read_address(*in[i], in_item);
  task.data[count] = address(out, out_item);
  c10::npu::launch(c10::npu::getCurrentNPUStream(out.device().index()), ir, std::move(task));
}

}  // namespace at::native::npu
