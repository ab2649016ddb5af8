#include <torch/csrc/distributed/c10d/HCCLChannel.hpp>

#include <acl_loader.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUGuard.h>

#include <array>
#include <cstring>
#include <vector>

namespace c10d {

namespace acl = c10::npu::acl;

namespace {

// Streams of closed channels, for the next ones. They are never destroyed: the caching allocator may still ask a stream
// whether it has passed the last use of a block.
struct Streams {
  std::mutex mutex;
  std::array<std::vector<aclrtStream>, 2> free[64];
};

Streams& streams() {
  static auto* value = new Streams;
  return *value;
}

c10::npu::NPUStream take_stream(c10::DeviceIndex device, bool high_priority) {
  auto& s = streams();
  const std::lock_guard<std::mutex> lock(s.mutex);
  auto& list = s.free[device][high_priority];
  aclrtStream handle = nullptr;
  if (list.empty()) {
    const c10::npu::NPUGuard guard(device);
    c10::npu::activate_device();
    static const bool configurable = acl::has_function("aclrtCreateStreamWithConfig");
    if (configurable) {
      NPU_CHECK(acl::aclrtCreateStreamWithConfig(&handle, high_priority ? 0 : 1, ACL_STREAM_FAST_LAUNCH));
    } else {
      NPU_CHECK(acl::aclrtCreateStream(&handle));
    }
  } else {
    handle = list.back();
    list.pop_back();
  }
  return c10::npu::getStreamFromExternal(handle, device);
}

void give_stream(const c10::npu::NPUStream& stream, bool high_priority) {
  auto& s = streams();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.free[stream.device_index()][high_priority].push_back(stream.stream());
}

constexpr char kGood = 'g', kBad = 'b';  // the first byte of what rank 0 puts into the store

}  // namespace

HCCLElements hccl_elements(at::ScalarType dtype) {
  switch (dtype) {
    case at::kChar:
      return {HCCL_DATA_TYPE_INT8, 1, true};
    case at::kShort:
      return {HCCL_DATA_TYPE_INT16, 1, true};
    case at::kInt:
      return {HCCL_DATA_TYPE_INT32, 1, true};
    case at::kLong:
      return {HCCL_DATA_TYPE_INT64, 1, true};
    case at::kByte:
    case at::kBool:
      return {HCCL_DATA_TYPE_UINT8, 1, true};
    case at::kUInt16:
      return {HCCL_DATA_TYPE_UINT16, 1, true};
    case at::kUInt32:
      return {HCCL_DATA_TYPE_UINT32, 1, true};
    case at::kUInt64:
      return {HCCL_DATA_TYPE_UINT64, 1, true};
    case at::kHalf:
      return {HCCL_DATA_TYPE_FP16, 1, true};
    case at::kBFloat16:
      return {HCCL_DATA_TYPE_BFP16, 1, true};
    case at::kFloat:
      return {HCCL_DATA_TYPE_FP32, 1, true};
    case at::kDouble:
      return {HCCL_DATA_TYPE_FP64, 1, true};
    default:
      return {HCCL_DATA_TYPE_UINT8, c10::elementSize(dtype), false};
  }
}

HcclReduceOp hccl_reduction(const ReduceOp& op, at::ScalarType dtype) {
  TORCH_CHECK_TYPE(hccl_elements(dtype).reducible, "hccl cannot reduce tensors of ", dtype,
                   "; reduce a copy in another dtype");
  const bool is_bool = dtype == at::kBool;
  switch (op) {
    case ReduceOp::SUM:
      return is_bool ? HCCL_REDUCE_MAX : HCCL_REDUCE_SUM;  // a sum of truth values is "any"
    case ReduceOp::PRODUCT:
      return is_bool ? HCCL_REDUCE_MIN : HCCL_REDUCE_PROD;  // and a product "all"
    case ReduceOp::MIN:
      return HCCL_REDUCE_MIN;
    case ReduceOp::MAX:
      return HCCL_REDUCE_MAX;
    case ReduceOp::AVG:
    case ReduceOp::PREMUL_SUM:
      TORCH_CHECK_TYPE(!is_bool, "Cannot use ReduceOp.", op == ReduceOp::AVG ? "AVG" : "PREMUL_SUM",
                       " with bool inputs");
      return HCCL_REDUCE_SUM;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      TORCH_CHECK_VALUE(false, "Cannot use ReduceOp.",
                        op == ReduceOp::BAND ? "BAND" : (op == ReduceOp::BOR ? "BOR" : "BXOR"),
                        " with hccl; gather the tensors and combine them, or use gloo with CPU tensors");
    default:
      TORCH_CHECK_VALUE(false, "hccl has no such ReduceOp");
  }
}

std::string hccl_error(HcclResult code) {
  std::string text = "HCCL error " + std::to_string(static_cast<int>(code));
  if (acl::has_function("HcclGetErrorString")) text += std::string(" (") + acl::HcclGetErrorString(code) + ")";
  const std::string reason = c10::npu::take_recent_error();
  return reason.empty() ? text : text + ": " + reason;
}

void hccl_check(HcclResult code, const std::string& what) {
  if (C10_LIKELY(code == HCCL_SUCCESS)) return;
  C10_THROW_ERROR(DistBackendError, what + ": " + hccl_error(code));
}

void hccl_require() {
  TORCH_CHECK(c10::npu::acl::has_function("HcclGetRootInfo"),
              "the hccl back end needs libhccl.so: ", acl::about_missing_function("HcclGetRootInfo"),
              ". On a card, run 'source /usr/local/Ascend/ascend-toolkit/set_env.sh', which puts the folder of "
              "libhccl.so on LD_LIBRARY_PATH, and install CANN's toolkit if it is not there; without a card, install "
              "the torch wheel whole");
}

HCCLChannel::HCCLChannel(const c10::intrusive_ptr<Store>& store, const std::string& key, int size, int rank,
                         c10::DeviceIndex device, bool high_priority)
    : stream_(take_stream(device, high_priority)), rank_(rank) {
  const c10::npu::NPUGuard guard(device);
  c10::npu::activate_device();
  const std::string what = "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                           " cannot make a communicator on npu:" + std::to_string(static_cast<int>(device));
  HcclRootInfo root{};
  if (rank == 0) {
    const HcclResult code = acl::HcclGetRootInfo(&root);
    const std::string problem = code == HCCL_SUCCESS ? "" : what + ": " + hccl_error(code);
    const bool good = problem.empty();
    std::vector<uint8_t> bytes(1 + (good ? size_t{HCCL_ROOT_INFO_BYTES} : problem.size()));
    bytes[0] = static_cast<uint8_t>(good ? kGood : kBad);
    std::memcpy(bytes.data() + 1, good ? root.internal : problem.data(), bytes.size() - 1);
    store->set(key, bytes);
    if (!problem.empty()) C10_THROW_ERROR(DistBackendError, problem);
  } else {
    const std::vector<uint8_t> bytes = store->get(key);
    const bool good = bytes.size() == 1 + HCCL_ROOT_INFO_BYTES && bytes[0] == static_cast<uint8_t>(kGood);
    if (!good) {
      C10_THROW_ERROR(
          DistBackendError,
          what + ": " + (bytes.empty() ? "the store has no root info" : std::string(bytes.begin() + 1, bytes.end())));
    }
    std::memcpy(root.internal, bytes.data() + 1, HCCL_ROOT_INFO_BYTES);
  }
  hccl_check(acl::HcclCommInitRootInfo(static_cast<uint32_t>(size), &root, static_cast<uint32_t>(rank), &comm_), what);
}

HCCLChannel::~HCCLChannel() {
  try {
    destroy();
  } catch (const std::exception& error) {
    TORCH_WARN("An hccl communicator could not be closed: ", error.what());
  }
  give_stream(stream_, stream_.priority() != 0);
}

void HCCLChannel::describe(const std::string& text) const {
  static const bool told = acl::has_function("hcclsimDescribe");
  if (told) acl::hcclsimDescribe(comm_, text.c_str());
}

std::string HCCLChannel::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  static const bool told = acl::has_function("HcclGetCommAsyncError");
  HcclResult code = HCCL_SUCCESS;
  if (!told || !comm_ || acl::HcclGetCommAsyncError(comm_, &code) != HCCL_SUCCESS || code == HCCL_SUCCESS) return "";
  return hccl_error(code);
}

void HCCLChannel::abort(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_ || !comm_) return;
  aborted_ = true;
  static const bool gently = acl::has_function("hcclsimAbort");
  if (gently) {
    acl::hcclsimAbort(comm_, reason.c_str());
  } else {
    // CANN has no call that ends what waits but the end of the communicator.
    acl::HcclCommDestroy(comm_);
    comm_ = nullptr;
  }
}

std::string HCCLChannel::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  static const bool told = acl::has_function("hcclsimGetState");
  if (!told || !comm_) return "";
  std::vector<char> text(size_t{1} << 16);
  return acl::hcclsimGetState(comm_, text.data(), text.size()) == HCCL_SUCCESS ? std::string(text.data()) : "";
}

std::string HCCLChannel::name() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!comm_ || !acl::has_function("HcclGetCommName")) return "";
  char name[128] = "";
  hccl_check(acl::HcclGetCommName(comm_, name), "HcclGetCommName");
  return name;
}

void HCCLChannel::destroy() {
  HcclComm comm = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(comm, comm_);
  }
  if (!comm || c10::npu::is_shut_down() || c10::npu::is_in_bad_fork()) return;
  const c10::npu::NPUGuard guard(device());
  c10::npu::activate_device();
  hccl_check(acl::HcclCommDestroy(comm), "HcclCommDestroy");
}

}  // namespace c10d
