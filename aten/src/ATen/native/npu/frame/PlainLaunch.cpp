// Launches of operators whose descriptors depend on name, dtypes and one shape.

#include <ATen/native/npu/frame/PlainLaunch.h>

#include <ATen/native/npu/frame/DescriptorCache.h>
#include <ATen/native/npu/frame/Dtype.h>
#include <acl_loader.h>
#include <c10/npu/NPUTaskQueue.h>

namespace at::native::npu {

namespace acl = c10::npu::acl;

namespace {

constexpr size_t kMostOperands = 4;
constexpr size_t kSlots = 512;  // a power of two

constexpr size_t kMostDims = 8;  // commands of more are prepared each time

struct Slot {
  const char* ir = nullptr;
  uint32_t kind = 0;  // dtypes, count of operands, rank
  std::array<int64_t, kMostDims> sizes{};
  c10::intrusive_ptr<Prepared> prepared;

  bool holds(const char* name, uint32_t wanted, IntArrayRef dims) const {
    if (ir != name || kind != wanted) return false;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (sizes[i] != dims[i]) return false;
    }
    return true;
  }
};

// A thread's recent commands, and the data buffers that it hands to ACL, which reads them during the call.
struct ThreadState {
  std::array<Slot, kSlots> slots;
  std::array<aclDataBuffer*, kMostOperands> buffers{};
};

ThreadState& state() {
  // Never destroyed: at the end of the process the ACL library may be gone already.
  thread_local ThreadState* instance __attribute__((tls_model("initial-exec"))) = nullptr;
  if (C10_UNLIKELY(instance == nullptr)) {
    instance = new ThreadState();
    for (auto& buffer : instance->buffers) buffer = acl::aclCreateDataBuffer(nullptr, 0);
  }
  return *instance;
}

aclTensorDesc* describe(aclDataType dtype, IntArrayRef sizes) {
  const aclFormat format = sizes.size() == 4 ? ACL_FORMAT_NCHW : sizes.size() == 5 ? ACL_FORMAT_NCDHW : ACL_FORMAT_ND;
  return acl::aclCreateTensorDesc(dtype, static_cast<int>(sizes.size()), sizes.data(), format);
}

c10::intrusive_ptr<Prepared> prepare(ScalarType in, ScalarType out, IntArrayRef sizes, size_t count) {
  auto prepared = c10::make_intrusive<Prepared>();
  for (size_t i = 0; i < count; ++i) prepared->inputs.push_back(describe(acl_dtype(in), sizes));
  prepared->outputs.push_back(describe(acl_dtype(out), sizes));
  prepared->attributes = acl::aclopCreateAttr();
  return prepared;
}

void* address(const TensorImpl& t) {
  return static_cast<char*>(t.unsafe_storage().unsafeGetStorageImpl()->mutable_data()) +
         t.storage_offset() * static_cast<int64_t>(t.itemsize());
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
    auto& buffers = state().buffers;
    for (size_t i = 0; i < count; ++i) acl::aclUpdateDataBuffer(buffers[i], data[i], in_bytes);
    acl::aclUpdateDataBuffer(buffers[count], data[count], out_bytes);
    return acl::aclopCompileAndExecute(ir, static_cast<int>(count), prepared->inputs.data(), buffers.data(), 1,
                                       prepared->outputs.data(), &buffers[count], prepared->attributes, ACL_ENGINE_SYS,
                                       ACL_COMPILE_SYS, nullptr, stream);
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

void launch_plain(const char* ir, const TensorImpl& out, const TensorImpl* const* in, size_t count) {
  const ScalarType in_dtype = typeMetaToScalarType(in[0]->dtype());
  const ScalarType out_dtype = typeMetaToScalarType(out.dtype());
  const IntArrayRef sizes = out.sizes();
  const auto kind = static_cast<uint32_t>(in_dtype) | static_cast<uint32_t>(out_dtype) << 8 |
                    static_cast<uint32_t>(count) << 16 | static_cast<uint32_t>(sizes.size()) << 24;
  uint64_t hash = reinterpret_cast<uint64_t>(ir) ^ kind * 0x9E3779B97F4A7C15ULL;
  for (const int64_t size : sizes) {
    hash = (hash ^ static_cast<uint64_t>(size)) * 0xFF51AFD7ED558CCDULL;
    hash ^= hash >> 29;
  }
  Slot& slot = state().slots[(hash ^ hash >> 17) & (kSlots - 1)];
  if (C10_UNLIKELY(sizes.size() > kMostDims || !slot.holds(ir, kind, sizes))) {
    slot.prepared = prepare(in_dtype, out_dtype, sizes, count);
    slot.ir = sizes.size() > kMostDims ? nullptr : ir;
    slot.kind = kind;
    for (size_t i = 0; i < sizes.size() && i < kMostDims; ++i) slot.sizes[i] = sizes[i];
  }
  Task task;
  task.ir = ir;
  task.prepared = slot.prepared.get();
  task.count = count;
  const auto elements = static_cast<size_t>(out.numel());
  task.in_bytes = elements * in[0]->itemsize();
  task.out_bytes = elements * out.itemsize();
  for (size_t i = 0; i < count; ++i) task.data[i] = address(*in[i]);
  task.data[count] = address(out);
  c10::npu::launch(c10::npu::getCurrentNPUStream(out.device().index()), ir, std::move(task));
}

}  // namespace at::native::npu
